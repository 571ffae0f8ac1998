"""Which parts of a run give way when its corpus grows, at how many passages, and what then."""

from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from realm_jax.planning.chips import Slice
from realm_jax.retrieval.search_plan import RESCORED_BYTES, code_bytes

_FLOAT32 = 4  # bytes
_LARGEST_ROW = 2**31 - 1  # searchers number rows in int32


@dataclass(frozen=True)
class Assumptions:
    """What no compiler can tell.

    Attributes:
      share_of_roofline: of the compiled programs' least time that real runs reach; well-tuned
        BERT-base steps on TPUs reach 0.4 to 0.6.
      build_seconds: of one core for one passage of a ScaNN index; 444 s on two for 13.35 M were
        measured (benchmarks/RESULTS.md).
      build_threads: of the one machine that builds it.
      bucket_bandwidth: bytes per second between one machine and the bucket.
      memory_share: of a machine or chip that an index may fill beside all else.
      corpus_bytes: of a stored passage, text and word pieces (docs/how_to/bring_a_corpus.md).
      disk_bytes: of a machine, for the corpus.
    """

    share_of_roofline: float = 0.5
    build_seconds: float = 70e-6
    build_threads: int = 32
    bucket_bandwidth: float = 1e9
    memory_share: float = 0.8
    corpus_bytes: int = 4000
    disk_bytes: float = 2e12


@dataclass(frozen=True)
class Limit:
    """A part that breaks when the corpus grows: at how many passages, and what then."""

    part: str
    passages: float
    then: str


def index_row_bytes(config: ConfigDict) -> float:
    """Of one passage: its vector, and for ScaNN and FAISS its codes beside it."""
    width, search = config.model.embedding, config.search
    precision = {"mesh": search.dtype, "exact": "float32"}.get(search.kind, search.rescore)
    coded = search.kind in ("scann", "faiss")
    codes = code_bytes(width, search.dims_per_code) if coded else 0
    return float(RESCORED_BYTES[precision] * width + codes)


def limits(
    passages: int,
    step: float,
    refresh: float,
    place: Slice,
    config: ConfigDict,
    train: dict[str, Any],
    assumed: Assumptions,
) -> list[Limit]:
    """Where each part breaks, the first one first. While an index is swapped, two are in memory."""
    alarm, every = config.refresh.alarm_steps, config.refresh.every
    steps_allowed = max(0.0, alarm - every / 2) / 1.5
    memory = assumed.memory_share * place.chip.host_bytes
    two_indexes = 2 * index_row_bytes(config)
    found = [
        Limit(
            "staleness",
            passages * steps_allowed * step / refresh,
            "more builder chips; or a partial refresh: embed what is retrieved or has changed "
            "most, and rank the hits of the stale index again by fresh vectors in the step",
        ),
        Limit(
            "the builder's memory",
            memory / (_FLOAT32 * config.model.embedding),
            "an index in parts: each builder publishes the part that it embedded",
        ),
        Limit(
            "row numbers",
            float(_LARGEST_ROW),
            "an index in parts, each with rows of its own below 2^31; hits are merged by score",
        ),
        Limit(
            "the corpus on a machine's disk",
            assumed.disk_bytes / assumed.corpus_bytes,
            "each host holds the passages of its part and sends the candidates' word pieces",
        ),
    ]
    if config.search.kind == "mesh":
        left = max(0.0, assumed.memory_share * place.chip.hbm_bytes - train["hbm_bytes_peak"])
        then = "ScaNN on the hosts, partitioned over them; or a slice of more chips"
        found += [Limit("device memory", place.chips * left / two_indexes, then)]
    else:
        then = "an index partitioned over the hosts: each searches its part, hits are merged"
        found += [Limit("a trainer host's memory", memory / two_indexes, then)]
    return sorted(found, key=lambda limit: (limit.passages, limit.part))
