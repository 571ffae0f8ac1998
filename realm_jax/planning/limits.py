"""Limits of a run: the corpus size at which each part fails, and how to raise the limit."""

from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from realm_jax.planning.chips import Slice
from realm_jax.retrieval.search_plan import RESCORED_BYTES, code_bytes

_FLOAT32 = 4  # bytes
_LARGEST_ROW = 2**31 - 1  # searchers number rows in int32
ID_BYTES = 8  # of the map from index rows to passage ids, which every reader of an index holds
FINGERPRINT_BYTES = 16  # of a passage, in the builder


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of a plan that the compiled programs do not give.

    Attributes:
      share_of_roofline: roofline time divided by real time; well-tuned BERT-base steps on TPUs
        reach 0.4 to 0.6.
      build_seconds: core seconds per passage to build a ScaNN index; 444 s on two cores for 13.35 M
        passages were measured (benchmarks/RESULTS.md).
      build_threads: cores of a machine that builds an index or segments of one.
      bucket_bandwidth: bytes per second between one machine and the bucket.
      memory_share: share of the memory of a machine or chip that indexes may use.
      corpus_bytes: bytes of a stored passage, text and word pieces (docs/how_to/bring_a_corpus.md).
      piece_bytes: of these, bytes of the word pieces, which the builder reads.
      disk_bytes: disk of a machine for the corpus.
    """

    share_of_roofline: float = 0.5
    build_seconds: float = 70e-6
    build_threads: int = 32
    bucket_bandwidth: float = 1e9
    memory_share: float = 0.8
    corpus_bytes: int = 4000
    piece_bytes: int = 600
    disk_bytes: float = 2e12


@dataclass(frozen=True)
class Limit:
    """The limit of one part.

    Attributes:
      part: what fails.
      passages: largest corpus that it can handle.
      then: how to go beyond.
    """

    part: str
    passages: float
    then: str


def index_row_bytes(config: ConfigDict) -> float:
    """Bytes of one passage in an index: its vector, and for ScaNN and FAISS its codes."""
    width, search = config.model.embedding, config.search
    precision = {"mesh": search.dtype, "exact": "float32"}.get(search.kind, search.rescore)
    copies = {"scann": 1 + search.soar, "faiss": 1}.get(search.kind, 0)  # SOAR stores codes twice
    codes = copies * code_bytes(width, search.dims_per_code)
    return float(RESCORED_BYTES[precision] * width + codes)


def segments(passages: int, config: ConfigDict) -> int:
    """Number of segments in which the builder makes the index."""
    if config.search.kind == "mesh":
        return 1
    return max(1, -(-passages // config.search.segment_passages))


def segment_bytes(passages: int, config: ConfigDict) -> float:
    """Memory of a segment in the builder: its vectors in float32, and its searcher."""
    rows = passages / segments(passages, config)
    return rows * (_FLOAT32 * config.model.embedding + index_row_bytes(config))


def placement(passages: int, trainer: Slice, config: ConfigDict, assumed: Assumptions) -> str:
    """The `search.placement` of a run: `hosts` if asked for, or if one host's memory is too small.

    An index of kind mesh is spread over the devices: `everywhere`.
    """
    if config.search.kind == "mesh":
        return "everywhere"
    needed = passages * (2 * index_row_bytes(config) + ID_BYTES)
    fits = needed <= assumed.memory_share * trainer.host_bytes
    return config.search.placement if fits else "hosts"


def limits(
    passages: int,
    step: float,
    refresh: float,
    trainer: Slice,
    config: ConfigDict,
    train: dict[str, Any],
    assumed: Assumptions,
) -> list[Limit]:
    """Computes the limit of each part, lowest first. During a swap, two indexes are in memory.

    Steps that wait for fresh indexes (`refresh.mode=sync`, `refresh.max_staleness` up to
    `refresh.alarm_steps`) have no limit of staleness; the run takes longer.

    A corpus that is larger than the disk of a machine lies on a file system that all machines
    mount; reading it takes time (`plan.refresh_parts`), but no disk.

    Args:
      passages: N.
      step: seconds of a training step.
      refresh: seconds of a refresh at N passages.
      trainer: slice of the trainer.
      config: of the run.
      train: compile report of the training step.
      assumed: assumptions.
    """
    alarm, every = config.refresh.alarm_steps, config.refresh.every
    steps_allowed = max(0.0, alarm - every / 2) / 1.5
    memory = assumed.memory_share * trainer.host_bytes
    two_indexes = 2 * index_row_bytes(config)
    found = [Limit("row numbers", float(_LARGEST_ROW), "row numbers of 64 bits; not implemented")]
    waits = config.refresh.mode == "sync" or 0 < config.refresh.max_staleness <= alarm
    if not waits:
        then = "more builder chips; or refresh.mode=rolling, with a mean of about half a refresh "
        then += "instead of 1.5"
        found += [Limit("staleness", passages * steps_allowed * step / refresh, then)]
    found.append(_builder_limit(passages, memory, config))
    if config.search.kind == "mesh":
        left = max(0.0, assumed.memory_share * trainer.chip.hbm_bytes - train["hbm_bytes_peak"])
        then = "search.kind=scann with search.placement=hosts; or a slice with more chips"
        found += [Limit("device memory", trainer.chips * left / two_indexes, then)]
    else:
        then = "a slice with more hosts: with search.placement=hosts, each holds 1/n of the index"
        most = memory / (two_indexes / trainer.hosts + ID_BYTES)
        found += [Limit("a trainer host's memory", most, then)]
    return sorted(found, key=lambda limit: (limit.passages, limit.part))


def _builder_limit(passages: int, memory: float, config: ConfigDict) -> Limit:
    """Its memory holds one segment, and ids and fingerprints of all passages."""
    part, whole = "the builder's memory", ID_BYTES + FINGERPRINT_BYTES
    left = memory - segment_bytes(passages, config)
    if left >= passages * whole:
        return Limit(part, left / whole, "builders with more memory")
    rows = memory / (_FLOAT32 * config.model.embedding + index_row_bytes(config) + whole)
    if config.search.kind == "mesh":
        return Limit(part, rows, "search.kind=scann, whose builder makes one segment at a time")
    return Limit(part, rows, f"search.segment_passages below {rows:.3g}")
