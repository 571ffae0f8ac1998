"""The retriever: masked queries or questions to ranked passages, and from these to candidates."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.dedup import copies
from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import NULL_PASSAGE, Rows
from realm_jax.retrieval.encoder import MAX_QUERIES
from realm_jax.retrieval.searcher import Searcher

Candidates = tuple[Int64[np.ndarray, "B K"], Bool[np.ndarray, "B K"]]


@runtime_checkable
class Index(Protocol):
    """The parts of a published index that a retriever uses."""

    @property
    def step(self) -> int: ...
    @property
    def searcher(self) -> Searcher: ...
    @property
    def rows(self) -> Int64[np.ndarray, "N"]: ...
    @property
    def query_params(self) -> dict[str, Any]: ...


class StepContext(NamedTuple):
    """The training step that a search belongs to.

    Attributes:
      positions: rows of the global batch that this process builds, ascending; all processes search
        together. None: this process searches by itself.
      batch_size: B, rows of all processes.
      params: embedder parameters of the step, for the kinds of retriever that use them. None: the
        parameters published with the index.
    """

    positions: Int64[np.ndarray, "R"] | None = None
    batch_size: int = 0
    params: dict[str, Any] | None = None


NO_STEP = StepContext()


class Retriever(ABC):
    """Finds passages for queries; `make_retriever` chooses the kind from the config.

    Args:
      config: of the run; `retrieval` is used.

    Attributes:
      prefetchable: whether batches may be built before the step that uses them: the hits depend
        only on the index, and the search does not run on the trainer's devices.
    """

    prefetchable: bool

    def __init__(self, config: ConfigDict):
        self._settings = config.retrieval

    @abstractmethod
    def hits(
        self, index: Index, queries: Rows, k: int, step: StepContext = NO_STEP
    ) -> Int64[np.ndarray, "R K"]:
        """Passage ids of the k best passages of each query, best first.

        Args:
          index: the index to search.
          queries: [R, Q].
          k: cut to the size of the index.
          step: the training step that searches, if there is one.
        """

    def candidates(
        self,
        index: Index,
        queries: Rows,
        source: Int64[np.ndarray, "R"],
        store: PassageStore,
        step: StepContext = NO_STEP,
    ) -> Candidates:
        """Searches for the candidates of each query.

        Args:
          index: see `hits`.
          queries: see `hits`.
          source: see `select`.
          store: see `select`.
          step: see `hits`.

        Returns:
          See `select_candidates`; K is `retrieval.candidates`.
        """
        hits = self.hits(index, queries, self._settings.candidates, step)
        return self.select(hits, source, store)

    def select(
        self,
        hits: Int64[np.ndarray, "R H"],
        source: Int64[np.ndarray, "R"],
        store: PassageStore,
    ) -> Candidates:
        """Chooses the candidates among hits, as `config.retrieval` asks for.

        Args:
          hits: passage ids, best first.
          source: the passage that each query was taken from, -1 if it is not from the corpus; with
            `retrieval.exclude_source`, it and passages with the same text are left out.
          store: the corpus of the hits.
        """
        excluded = copies(store, source, hits) if self._settings.exclude_source else None
        return select_candidates(
            hits, excluded, self._settings.candidates, self._settings.null_passage
        )


def search(index: Index, vectors: Float32[np.ndarray, "B E"], k: int) -> Int64[np.ndarray, "B K"]:
    """The passage ids of `search_with_scores`."""
    return search_with_scores(index, vectors, k)[0]


def search_with_scores(
    index: Index, vectors: Float32[np.ndarray, "B E"], k: int
) -> tuple[Int64[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
    """Passage ids and the searcher's scores of the k best passages of each query, best first.

    At most `MAX_QUERIES` queries are searched in a call, because exact searchers keep the scores of
    all queries of a call in memory.

    Args:
      index: the index to search.
      vectors: of the queries.
      k: cut to the size of the index.
    """
    k = min(k, index.searcher.size)
    starts = range(0, max(len(vectors), 1), MAX_QUERIES)
    parts = [index.searcher.search(vectors[at : at + MAX_QUERIES], k) for at in starts]
    rows, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return index.rows[rows], scores


def select_candidates(
    hits: Int64[np.ndarray, "B H"],
    excluded: Bool[np.ndarray, "B H"] | None,
    count: int,
    null_passage: bool,
) -> Candidates:
    """Adds the null passage and leaves out hits, such as the source of a query (section 3.4).

    Args:
      hits: passage ids, best first.
      excluded: hits to leave out; None: none.
      count: K.
      null_passage: whether the null passage takes part in p(z|x).

    Returns:
      ids: passage ids [B, K]; candidate 0 is the null passage. If there are fewer hits than
        candidates, the rest is filled with the null passage.
      valid: [B, K], which candidates take part in p(z|x). Filled ones do not.
    """
    allowed = np.ones(hits.shape, bool) if excluded is None else ~excluded
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
