"""Approximate search with ScaNN; no other module imports it.

Hits are rescored, so their scores are inner products in the precision of `config.search.rescore`.
The same vectors and seed build the same index.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from scann.scann_ops.py import scann_builder, scann_ops_pybind

from realm_jax.errors import DamageError
from realm_jax.retrieval import search_plan
from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.planned_searcher import PlannedSearcher
from realm_jax.retrieval.searcher import check_vectors
from realm_jax.retrieval.searcher_files import read_description, write_description

ANISOTROPY = 0.2  # ScaNN's anisotropic quantisation threshold (Guo et al., 2020)
# ScaNN's eta for partition centres; None: centres are means. The mean of a partition with rows of
# several clusters is nearer the origin than any of them, so its score would be too low.
CENTRE_ANISOTROPY = 4.0
SOAR_LAMBDA = 1.5  # recommended by ScaNN (Sun et al., 2023, "SOAR")
ROWS_PER_UPSERT = 1000
ASSETS = "scann_assets.pbtxt"


class ScannSearcher(PlannedSearcher):
    """A built or loaded ScaNN index."""

    kind, backend = "scann", "ScaNN"

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
    ) -> "ScannSearcher":
        """Trains an index over `vectors` and fills it; `options` is `config.search`."""
        size, dims = vectors.shape
        plan = search_plan.make_plan(size, dims, options)
        mean = Mean.of(vectors)
        vectors = mean.subtract_from(vectors)
        builder = scann_ops_pybind.builder(vectors, 10, "dot_product")
        if plan["leaves"]:
            builder = builder.tree(
                plan["leaves"],
                plan["leaves_searched"],
                training_sample_size=search_plan.training_sample(plan),
                random_init=False,  # True would ignore the seed
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

    def _search(self, queries, k, leaves):
        """See `PlannedSearcher`; missing hits have the score NaN and a meaningless row 0."""
        reorder = max(k, self.plan["reorder"]) if self.plan["reorder"] else None
        rows, scores = self.index.search_batched_parallel(
            np.ascontiguousarray(queries), k, reorder, leaves or None
        )
        return rows.astype(np.int32), scores.astype(np.float32), ~np.isnan(scores)

    def restart_threads(self) -> None:
        """Replaces the search threads by new ones with the priority of the calling thread."""
        self.index.searcher.set_num_threads(max(1, (os.cpu_count() or 1) - 1))  # ScaNN's default

    def reencode(self, vectors: Float32[np.ndarray, "N E"]) -> None:
        """See `ReencodableSearcher.reencode`."""
        check_vectors(vectors)
        for start in range(0, self.size, ROWS_PER_UPSERT):
            part = vectors[start : start + ROWS_PER_UPSERT] - self.mean.vector
            rows = list(range(start, start + len(part)))
            self.index.searcher.upsert(rows, part, len(part))

    def save(self, folder: Path) -> None:
        """Writes ScaNN's files with relative paths, so that the folder can be moved."""
        self.index.serialize(str(folder), relative_path=True)
        self.mean.save(folder)
        write_description(folder, self, plan=self.plan)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "ScannSearcher":
        """Loads a saved index into memory."""
        description = read_description(folder)
        # ScaNN's own load_searcher would unpickle a file from the folder, which is not safe.
        try:
            native = scann_ops_pybind.scann_pybind.ScannNumpy(
                str(folder), (folder / ASSETS).read_text()
            )
        except (OSError, RuntimeError) as error:
            raise DamageError("ScaNN cannot load the index", where=folder, found=error) from error
        index = scann_ops_pybind.ScannSearcher(native)
        if index.size() != description["size"]:
            raise DamageError(
                "the index does not match its description",
                where=folder,
                expected=f"{description['size']} rows",
                found=f"{index.size()} rows",
            )
        mean = Mean.load(folder, description["dims"])
        return cls(index, search_plan.of_description(description), mean)
