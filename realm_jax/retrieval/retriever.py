"""Candidates of a batch of masked queries: search, no own passage, the null passage first."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int64
from ml_collections import ConfigDict

from realm_jax.data.rows import NULL_PASSAGE, Rows
from realm_jax.models.modules import Modules
from realm_jax.retrieval.searcher import Searcher

MOST_AT_ONCE = 512  # queries embedded, or searched for, in one call


@runtime_checkable
class Index(Protocol):
    """What searching needs of a published index."""

    @property
    def step(self) -> int: ...
    @property
    def searcher(self) -> Searcher: ...
    @property
    def rows(self) -> Int64[np.ndarray, "N"]: ...
    @property
    def query_params(self) -> dict[str, Any]: ...


class Retriever:
    """Searches an index with the query embedder that was published in it.

    So the candidates of a batch depend on the seed, the step and the index alone, and may be found
    ahead of the step.
    """

    def __init__(self, config: ConfigDict, vocabulary: int):
        self._modules = Modules(config.model, vocabulary, ("embedder",))
        self._embed: Callable[..., Float[Array, "B E"]] = jax.jit(self._embed_queries)
        self._placed: tuple[int, Any] = (-1, None)

    def _embed_queries(self, parameters: Any, queries: Rows) -> Float[Array, "B E"]:
        return self._modules.bind({"embedder": parameters}).embedder.embed(*queries)

    def vectors(self, index: Index, queries: Rows) -> Float32[np.ndarray, "B E"]:
        """Query vectors with the parameters of `index`."""
        placed = self._placed  # read once: another thread may search another index meanwhile
        if placed[0] != index.step:
            placed = self._placed = (index.step, jax.device_put(index.query_params))
        return self.vectors_by(placed[1], queries)

    def vectors_by(self, parameters: Any, queries: Rows) -> Float32[np.ndarray, "B E"]:
        """Query vectors with these parameters of an embedder."""
        size = len(queries.ids)
        if size <= MOST_AT_ONCE:
            return np.asarray(self._embed(parameters, queries))
        parts = []
        for start in range(0, size, MOST_AT_ONCE):
            wrapped = np.arange(start, start + MOST_AT_ONCE) % size  # one shape, so one trace
            some = Rows(*(part[wrapped] for part in queries))
            parts.append(np.asarray(self._embed(parameters, some)))
        return np.concatenate(parts)[:size]

    def hits(self, index: Index, queries: Rows, k: int) -> Int64[np.ndarray, "B K"]:
        """Passage ids of the k best, best first; k is cut to the size of the index."""
        return hits(index, self.vectors(index, queries), k)


def hits(index: Index, vectors: Float32[np.ndarray, "B E"], k: int) -> Int64[np.ndarray, "B K"]:
    """Passage ids of the k best for query vectors, best first; k is cut to the index's size.

    Asked in parts: exact searchers hold the scores of all queries of a call at once.
    """
    k = min(k, index.searcher.size)
    if len(vectors) <= MOST_AT_ONCE:
        return index.rows[index.searcher.search(vectors, k)[0]]
    starts = range(0, len(vectors), MOST_AT_ONCE)
    parts = [vectors[start : start + MOST_AT_ONCE] for start in starts]
    return np.concatenate([hits(index, part, k) for part in parts])


def candidates(
    hits: Int64[np.ndarray, "B H"],
    own: Int64[np.ndarray, "B"] | None,
    count: int,
    null_passage: bool,
) -> tuple[Int64[np.ndarray, "B K"], Bool[np.ndarray, "B K"]]:
    """K = `count` candidates per query from ranked hits, and which of them count.

    Candidate 0 is the null passage, in p(z|x) only if `null_passage`. The query's own passage is
    left out; places that no hit fills hold the null passage and do not count.
    """
    allowed = np.ones(hits.shape, bool) if own is None else hits != own[:, None]
    order = np.argsort(~allowed, axis=1, kind="stable")[:, : count - 1]
    chosen = np.full((len(hits), count), NULL_PASSAGE, np.int64)
    valid = np.zeros((len(hits), count), bool)
    valid[:, 0] = null_passage
    kept = np.take_along_axis(allowed, order, axis=1)
    found = np.take_along_axis(hits, order, axis=1)
    width = 1 + order.shape[1]
    chosen[:, 1:width] = np.where(kept, found, NULL_PASSAGE)
    valid[:, 1:width] = kept
    return chosen, valid
