"""Approximate search with ScaNN; the only file that knows its names.

The shape of the index follows ScaNN's own advice: brute force for a small corpus, quantised scores
for a middling one, a tree of partitions above that. Hits are rescored exactly, so scores are true
inner products. The same vectors and seed build the same index.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32
from scann.scann_ops.py import scann_ops_pybind

from realm_jax.errors import DamageError, RealmError
from realm_jax.search.searcher import check_queries, read_description, write_description

BRUTE_FORCE_BELOW = 20_000  # rows
TREE_FROM = 100_000  # rows
TRAINING_SAMPLE = 100_000  # rows from which centres are learnt ...
TRAINING_PER_LEAF = 40  # ... or this many per leaf, if that is more
ANISOTROPY = 0.2  # weight that quantisation gives to error along the vector
ASSETS = "scann_assets.pbtxt"


class ScannSearcher:
    """A loaded or built ScaNN index.

    Args:
      index: ScaNN's own object.
      plan: size, dims, leaves (0: no tree), leaves_searched and reorder (0: brute force).
    """

    kind = "scann"

    def __init__(self, index: Any, plan: dict[str, int]):
        self.index, self.plan = index, plan
        self.size, self.dims = plan["size"], plan["dims"]
        codes = self.size * (self.dims + 3) // 4 if plan["reorder"] else 0  # 4 bits per 2 dims
        self.bytes = self.size * self.dims * 4 + codes

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
    ) -> "ScannSearcher":
        """Trains and fills an index over `vectors`; `options` is `config.search`."""
        size, dims = vectors.shape
        plan = make_plan(size, dims, options)
        builder = scann_ops_pybind.builder(vectors, 10, "dot_product")
        if plan["leaves"]:
            builder = builder.tree(
                plan["leaves"],
                plan["leaves_searched"],
                training_sample_size=max(TRAINING_SAMPLE, TRAINING_PER_LEAF * plan["leaves"]),
                random_init=False,  # the other choice draws its centres without our seed
            )
        if plan["reorder"]:
            builder = builder.score_ah(2, anisotropic_quantization_threshold=ANISOTROPY)
            builder = builder.reorder(plan["reorder"])
        else:
            builder = builder.score_brute_force()
        scann_config = builder.create_config()
        for clustering in ("partitioning {", "asymmetric_hash {"):
            scann_config = scann_config.replace(clustering, f"{clustering} clustering_seed: {seed}")
        return cls(scann_ops_pybind.create_searcher(vectors, scann_config), plan)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; the order is that of true inner products, some hits may be missed.

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
        return rows, scores

    def _search(self, queries, k, leaves):
        """ScaNN's answer; missing hits have the score NaN (and row 0, which means nothing)."""
        reorder = max(k, self.plan["reorder"]) if self.plan["reorder"] else None
        rows, scores = self.index.search_batched_parallel(
            np.ascontiguousarray(queries), k, reorder, leaves or None
        )
        return rows.astype(np.int32), scores.astype(np.float32)

    def widen(self) -> bool:
        """Four times the partitions and the exactly rescored rows; False once all are."""
        if self.plan["reorder"] in (0, self.size):
            return False
        wider = {"leaves_searched": "leaves", "reorder": "size"}
        for key, most in wider.items():
            self.plan[key] = min(4 * self.plan[key], self.plan[most])
        return True

    def save(self, folder: Path) -> None:
        """Writes ScaNN's files with relative names, so that the folder may move."""
        self.index.serialize(str(folder), relative_path=True)
        write_description(folder, self, plan=self.plan)

    @classmethod
    def load(cls, folder: Path) -> "ScannSearcher":
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
        return cls(index, description["plan"])


def make_plan(size: int, dims: int, options: Any) -> dict[str, int]:
    """Which ScaNN index suits `size` rows, and how widely it is searched."""
    plan = {"size": size, "dims": dims, "leaves": 0, "leaves_searched": 0, "reorder": 0}
    if size < BRUTE_FORCE_BELOW:
        return plan
    plan["reorder"] = min(options.reorder, size)
    if size >= TREE_FROM or options.leaves:
        plan["leaves"] = min(options.leaves or round(size**0.5), size)
        plan["leaves_searched"] = min(
            options.leaves_searched or -(-plan["leaves"] // 10), plan["leaves"]
        )
    return plan
