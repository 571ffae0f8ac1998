"""Fusion of two rankings of passages into one: weighted sum or reciprocal rank."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from realm_jax.errors import InputError

RETRIEVERS = ("dense", "bm25", "hybrid")  # the dense and the BM25 ranking, and their fusion
DEPTH = 100  # least number of passages of each ranking that are fused, and the end of the scale
# Usual share of the vectors by kind. That of the sum was chosen on eleven judged collections
# (docs/evidence.md): on none of them is the sum clearly worse than the vectors alone.
DENSE_WEIGHTS = {"weighted_sum": 0.7, "reciprocal_rank": 0.5}
NO_PASSAGE = -1  # an id in a ranking that has fewer passages than columns
_RANK_CONSTANT = 60.0

Ranked = tuple[Int64[np.ndarray, "_ _"], Float32[np.ndarray, "_ _"]]


@dataclass(frozen=True)
class Fusion:
    """How two rankings become one.

    Attributes:
      kind: key of `DENSE_WEIGHTS`. `weighted_sum` adds scores, scaled per query to 0 (rank
        `DEPTH`, or the last) to 1 (rank 1), as in Bruch et al., 2023; `reciprocal_rank` adds
        1 / (60 + rank) (Cormack et al., 2009). A ranking without the passage, or with it after rank
        `DEPTH`, adds 0 to the sum, so more hits do not change the order of the best passages.
      weight: share of the first ranking in the sum, 0 to 1; the second has the rest. None: that of
        `DENSE_WEIGHTS`.
    """

    kind: str = "weighted_sum"
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in DENSE_WEIGHTS:
            known = " or ".join(DENSE_WEIGHTS)
            raise InputError("no such fusion", expected=known, found=repr(self.kind))
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise InputError(
                "the share of the vectors is out of range", expected="0 to 1", found=self.weight
            )

    def __call__(self, first: Ranked, second: Ranked, k: int) -> Ranked:
        """The k best passages of both rankings; equal scores are in the order of ids.

        Args:
          first: ids and scores [B, H], best first.
          second: ids and scores [B, I], best first.
          k: passages to return.

        Returns:
          Ids and scores [B, K]; rows with fewer than k different passages end with `NO_PASSAGE` and
          score 0.
        """
        share = DENSE_WEIGHTS[self.kind] if self.weight is None else self.weight
        points = [share * self._points(*first), (1 - share) * self._points(*second)]
        ids = np.concatenate([first[0], second[0]], axis=1)
        rows = [_add(*row, k) for row in zip(ids, np.concatenate(points, axis=1), strict=True)]
        return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    def _points(
        self, ids: Int64[np.ndarray, "B H"], scores: Float32[np.ndarray, "B H"]
    ) -> Float32[np.ndarray, "B H"]:
        """What each passage of one ranking is worth; less than 0 after the end of the scale."""
        if self.kind == "reciprocal_rank":
            ranks = np.arange(1, ids.shape[1] + 1, dtype=np.float32)
            return np.broadcast_to(1 / (_RANK_CONSTANT + ranks), ids.shape)
        found = ids != NO_PASSAGE
        last = np.clip(found.sum(1, keepdims=True), 1, DEPTH) - 1
        low, high = np.take_along_axis(scores, last, 1), scores[:, :1]
        above = np.where(found, scores - low, 0)
        equal = above + (np.arange(ids.shape[1]) < DEPTH)  # the scores down to `low` are all equal
        return np.where(high > low, above / np.where(high > low, high - low, 1), equal)


def _add(
    ids: Int64[np.ndarray, "H"], points: Float32[np.ndarray, "H"], k: int
) -> tuple[Int64[np.ndarray, "K"], Float32[np.ndarray, "K"]]:
    """Adds the points of equal ids of one query."""
    different, places = np.unique(ids, return_inverse=True)
    sums = np.bincount(places, np.maximum(points, 0))
    # Passages after rank `DEPTH` of both rankings come last, in the order of their better place.
    after = np.full(len(different), -np.inf)
    np.maximum.at(after, places, points)
    sums = np.where(sums > 0, sums, np.minimum(after, 0))
    sums[different == NO_PASSAGE] = -np.inf
    order = np.argsort(-sums, kind="stable")[:k]
    order = order[np.isfinite(sums[order])]
    out, scores = np.full(k, NO_PASSAGE, np.int64), np.zeros(k, np.float32)
    out[: len(order)], scores[: len(order)] = different[order], sums[order]
    return out, scores
