"""What the two approximate searchers share: a plan, centred vectors, and a second search."""

import abc
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32

from realm_jax.errors import RealmError
from realm_jax.retrieval import search_plan
from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.searcher import check_queries


class PlannedSearcher(abc.ABC):
    """An index of centred vectors, built and searched by a library (ScaNN, FAISS).

    Args:
      index: of the library, over the centred vectors.
      plan: see `make_plan`.
      mean: of the vectors.
    """

    kind: str
    backend: str  # its name in messages

    def __init__(self, index: Any, plan: search_plan.Plan, mean: Mean):
        self.index, self.plan, self.mean = index, plan, mean
        self.size, self.dims = plan["size"], plan["dims"]
        self.bytes = search_plan.bytes_of(plan)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; approximate.

        If the partitions searched for a query hold fewer than `k` rows, it searches all partitions.
        """
        check_queries(self, queries, k)
        rows, scores, found = self._search(queries, k, self.plan["leaves_searched"])
        short = ~found.all(axis=1)
        if short.any() and self.plan["leaves"]:
            rows[short], scores[short], found[short] = self._search(
                queries[short], k, self.plan["leaves"]
            )
        if not found.all():
            raise RealmError(
                f"{self.backend} returned fewer hits than requested",
                where=f"index of {self.size} rows",
                expected=f"{k} hits per query",
                found=int(found.sum(axis=1).min()),
                fix="set search.kind to exact or mesh",
            )
        return rows, self.mean.add_to_scores(queries, scores)

    @abc.abstractmethod
    def _search(
        self, queries: Float32[np.ndarray, "B E"], k: int, leaves: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"], Bool[np.ndarray, "B K"]]:
        """Calls the library: rows, scores of centred vectors, and which hits exist."""

    def _plan(self, options: Any) -> search_plan.Plan:
        """The plan for this size with the settings `config.search`."""
        return search_plan.make_plan(self.size, self.dims, options)

    def replan(self, options: Any) -> bool:
        """See `ReencodableSearcher.replan`."""
        return search_plan.replan(self.plan, self._plan(options))

    def widen(self) -> bool:
        """See `LocalSearcher.widen`."""
        return search_plan.widen(self.plan)
