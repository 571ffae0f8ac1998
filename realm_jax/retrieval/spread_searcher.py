"""An index whose segments are spread over the hosts of a job; they search it together."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Float32, Int32

from realm_jax.parallel import hosts
from realm_jax.retrieval.search_process import load_in_subprocess
from realm_jax.retrieval.searcher import Part, Searcher, check_queries
from realm_jax.retrieval.searcher_files import SEGMENTED, read_description, segments_in
from realm_jax.retrieval.segmented_searcher import SEGMENT, merge_hits
from realm_jax.storage.layout import SEARCHER

KIND = "spread"

log = logging.getLogger(__name__)


class SpreadSearcher:
    """Searches the segments of this host, and merges the hits of all hosts.

    All processes call `search` at the same time, with the same queries, and get the same hits: one
    collective gathers them.

    Args:
      own: over the segments of this host, with the rows of the whole index; None: it has none.
      size: N, rows of all hosts.
      dims: E.
    """

    kind = KIND

    def __init__(self, own: Searcher | None, size: int, dims: int):
        self._own, self.size, self.dims = own, size, dims
        self.bytes = 0 if own is None else own.bytes

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`."""
        check_queries(self, queries, k)
        rows = np.zeros((len(queries), k), np.int32)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        if self._own is not None:
            most = min(k, self._own.size)
            rows[:, :most], scores[:, :most] = self._own.search(queries, most)
        everyone = multihost_utils.process_allgather((rows, scores))
        return merge_hits(list(zip(*everyone, strict=True)), k)


def load_spread(folder: Path, mesh: Any = None) -> Searcher:
    """Loads the segments of this process; the whole index if it has one segment or one process.

    See `load_in_subprocess`.
    """
    description, processes = read_description(folder), hosts.process_count()
    if description["kind"] != SEGMENTED or processes == 1:
        return load_in_subprocess(folder, mesh)
    count = len(segments_in(description, folder))
    part, own = Part(hosts.process_index(), processes), None
    log.info("this host loads segments %s of %d", [*range(part.first, count, processes)], count)
    if part.first < count:
        own = load_in_subprocess(folder, mesh, part)
    return SpreadSearcher(own, description["size"], description["dims"])


def is_of_other_host(name: str) -> bool:
    """Whether a file of a published index, by its name, is of a segment of another process."""
    folder, _, inside = name.partition("/")
    segment, _, file = inside.partition("/")
    if folder != SEARCHER or not file or not segment.startswith(SEGMENT):
        return False
    number = int(segment.removeprefix(SEGMENT))
    return number % hosts.process_count() != hosts.process_index()
