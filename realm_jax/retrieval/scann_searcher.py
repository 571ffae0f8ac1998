"""Approximate search with ScaNN; the only file that knows its names.

Hits are rescored, so scores are inner products as exact as `config.search.rescore` has them. The
same vectors and seed build the same index.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32
from scann.scann_ops.py import scann_builder, scann_ops_pybind

from realm_jax.errors import DamageError, RealmError
from realm_jax.retrieval import search_plan as plans
from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.searcher import (
    check_queries,
    check_vectors,
    read_description,
    write_description,
)

ANISOTROPY = 0.2  # weight that quantisation gives to error along the vector
# ScaNN's eta for the centres of partitions; None makes them means. Where one has rows of several
# clusters, their mean lies nearer the origin than any of them, and its inner product with a query
# says too little.
CENTRE_ANISOTROPY = 4.0
SOAR_LAMBDA = 1.5  # ScaNN's advice (Sun et al. 2023, "SOAR")
ROWS_AT_ONCE = 1000  # that are encoded again in one call
ASSETS = "scann_assets.pbtxt"


class ScannSearcher:
    """A loaded or built ScaNN index.

    Args:
      index: ScaNN's own object, of vectors less their mean.
      plan: see `make_plan`.
      mean: of the vectors.
    """

    kind = "scann"

    def __init__(self, index: Any, plan: plans.Plan, mean: Mean):
        self.index, self.plan, self.mean = index, plan, mean
        self.size, self.dims = plan["size"], plan["dims"]
        self.bytes = plans.bytes_of(plan)

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
    ) -> "ScannSearcher":
        """Trains and fills an index over `vectors`; `options` is `config.search`."""
        size, dims = vectors.shape
        plan = plans.make_plan(size, dims, options)
        mean = Mean.of(vectors)
        vectors = mean.subtracted(vectors)
        builder = scann_ops_pybind.builder(vectors, 10, "dot_product")
        if plan["leaves"]:
            builder = builder.tree(
                plan["leaves"],
                plan["leaves_searched"],
                training_sample_size=plans.training_sample(plan),
                random_init=False,  # the other choice draws its centres without our seed
                avq=CENTRE_ANISOTROPY,
                soar_lambda=SOAR_LAMBDA if plan["soar"] else None,
            )
        if plan["reorder"]:
            precision = scann_builder.ReorderType[plan["rescore"].upper()]
            builder = builder.score_ah(
                plan["dims_per_code"], anisotropic_quantization_threshold=ANISOTROPY
            )
            builder = builder.reorder(plan["reorder"], quantize=precision)
        else:
            builder = builder.score_brute_force()
        scann_config = builder.create_config()
        for clustering in ("partitioning {", "asymmetric_hash {"):
            scann_config = scann_config.replace(clustering, f"{clustering} clustering_seed: {seed}")
        return cls(scann_ops_pybind.create_searcher(vectors, scann_config), plan, mean)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; some hits may be missed.

        A query whose partitions hold fewer than `k` rows is searched again in all of them.
        """
        check_queries(self, queries, k)
        rows, scores = self._search(queries, k, self.plan["leaves_searched"])
        short = np.isnan(scores).any(axis=1)
        if short.any() and self.plan["leaves"]:
            rows[short], scores[short] = self._search(queries[short], k, self.plan["leaves"])
        if np.isnan(scores).any():
            raise RealmError(
                "ScaNN returned fewer hits than asked for",
                where=f"index of {self.size} rows",
                expected=f"{k} hits per query",
                found=int((~np.isnan(scores)).sum(axis=1).min()),
                fix="set search.kind to exact or mesh",
            )
        return rows, self.mean.true_scores(queries, scores)

    def _search(self, queries, k, leaves):
        """ScaNN's answer; missing hits have the score NaN (and row 0, which means nothing)."""
        reorder = max(k, self.plan["reorder"]) if self.plan["reorder"] else None
        rows, scores = self.index.search_batched_parallel(
            np.ascontiguousarray(queries), k, reorder, leaves or None
        )
        return rows.astype(np.int32), scores.astype(np.float32)

    def begin_threads(self) -> None:
        """Ends those that search, and begins as many with the priority of the calling thread."""
        self.index.searcher.set_num_threads(max(1, (os.cpu_count() or 1) - 1))  # ScaNN's number

    def reencode(self, vectors: Float32[np.ndarray, "N E"]) -> None:
        """Gives each row its new partition and codes; nobody may search meanwhile."""
        check_vectors(vectors)
        for start in range(0, self.size, ROWS_AT_ONCE):
            part = vectors[start : start + ROWS_AT_ONCE] - self.mean.vector
            rows = list(range(start, start + len(part)))
            self.index.searcher.upsert(rows, part, len(part))

    def widen(self) -> bool:
        """See `plan.widen`."""
        return plans.widen(self.plan)

    def save(self, folder: Path) -> None:
        """Writes ScaNN's files with relative names, so that the folder may move."""
        self.index.serialize(str(folder), relative_path=True)
        self.mean.save(folder)
        write_description(folder, self, plan=self.plan)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "ScannSearcher":
        """Reads a saved index into memory."""
        description = read_description(folder)
        # Not scann's own load_searcher: that one would unpickle a file it finds in the folder.
        try:
            native = scann_ops_pybind.scann_pybind.ScannNumpy(
                str(folder), (folder / ASSETS).read_text()
            )
        except (OSError, RuntimeError) as error:
            raise DamageError("ScaNN cannot load the index", where=folder, found=error) from error
        index = scann_ops_pybind.ScannSearcher(native)
        if index.size() != description["size"]:
            raise DamageError(
                "index is not the one described",
                where=folder,
                expected=f"{description['size']} rows",
                found=f"{index.size()} rows",
            )
        mean = Mean.load(folder, description["dims"])
        return cls(index, plans.of_description(description), mean)
