"""Limits of a run: the corpus size at which each part fails, and how to raise the limit."""

from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from realm_jax.planning.chips import Slice
from realm_jax.retrieval.search_plan import RESCORED_BYTES, code_bytes

_FLOAT32 = 4  # bytes
_LARGEST_ROW = 2**31 - 1  # searchers number rows in int32


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of a plan that the compiled programs do not give.

    Attributes:
      share_of_roofline: roofline time divided by real time; well-tuned BERT-base steps on TPUs
        reach 0.4 to 0.6.
      build_seconds: core seconds per passage to build a ScaNN index; 444 s on two cores for 13.35 M
        passages were measured (benchmarks/RESULTS.md).
      build_threads: cores of the machine that builds the index.
      bucket_bandwidth: bytes per second between one machine and the bucket.
      memory_share: share of the memory of a machine or chip that indexes may use.
      corpus_bytes: bytes of a stored passage, text and word pieces (docs/how_to/bring_a_corpus.md).
      disk_bytes: disk of a machine for the corpus.
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
    coded = search.kind in ("scann", "faiss")
    codes = code_bytes(width, search.dims_per_code) if coded else 0
    return float(RESCORED_BYTES[precision] * width + codes)


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
    memory = assumed.memory_share * trainer.chip.host_bytes
    two_indexes = 2 * index_row_bytes(config)
    found = [
        Limit(
            "staleness",
            passages * steps_allowed * step / refresh,
            "more builder chips; or a partial refresh: embed the passages that are retrieved or "
            "change most, and re-rank the hits of the stale index with fresh vectors in the step",
        ),
        Limit(
            "the builder's memory",
            memory / (_FLOAT32 * config.model.embedding),
            "a sharded index: each builder publishes the shard that it embedded",
        ),
        Limit(
            "row numbers",
            float(_LARGEST_ROW),
            "a sharded index with fewer than 2^31 rows per shard; hits are merged by score",
        ),
        Limit(
            "the corpus on a machine's disk",
            assumed.disk_bytes / assumed.corpus_bytes,
            "a sharded corpus: each host stores one shard and sends the candidates' word pieces",
        ),
    ]
    if config.search.kind == "mesh":
        left = max(0.0, assumed.memory_share * trainer.chip.hbm_bytes - train["hbm_bytes_peak"])
        then = "ScaNN, sharded over the hosts; or a slice with more chips"
        found += [Limit("device memory", trainer.chips * left / two_indexes, then)]
    else:
        then = "an index sharded over the hosts: each host searches its shard, hits are merged"
        found += [Limit("a trainer host's memory", memory / two_indexes, then)]
    return sorted(found, key=lambda limit: (limit.passages, limit.part))
