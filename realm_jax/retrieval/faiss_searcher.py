"""Approximate search with FAISS's scan of product codes; the only file that knows its names.

Laid out by the same plan as a ScaNN index: partitions, codes of 4 bits for every dimension or two,
and hits that are rescored. `benchmarks/search.py` compares the two. Extra `[faiss]`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from realm_jax.errors import ConfigError, DamageError, RealmError
from realm_jax.retrieval import search_plan as plans
from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.searcher import (
    check_queries,
    check_vectors,
    read_description,
    write_description,
)

try:
    import faiss
except ImportError as error:
    raise ConfigError(
        "this kind of searcher needs a package that is not installed",
        where="config.search.kind",
        expected="faiss-cpu",
        found="nothing",
        fix="pip install -e '.[faiss]', or set search.kind to scann",
    ) from error

INDEX = "index.faiss"
ROWS_AT_ONCE = 1 << 18
# Codes without ScaNN's weighting of errors tell less: among 120,000 clustered rows recall@10 was
# 0.73 with 100 rescored, where ScaNN has over 0.95, and 0.998 with four times as many.
RESCORED_MORE = 4


class FaissSearcher:
    """A loaded or built FAISS index.

    Args:
      index: FAISS's own object, of vectors less their mean.
      plan: see `make_plan`; `soar` means nothing here.
      mean: of the vectors.
    """

    kind = "faiss"

    def __init__(self, index: Any, plan: plans.Plan, mean: Mean):
        self.index, self.plan, self.mean = index, plan, mean
        self.size, self.dims = plan["size"], plan["dims"]
        self.bytes = plans.bytes_of(plan)

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
    ) -> "FaissSearcher":
        """Trains and fills an index over `vectors`; `options` is `config.search`.

        Raises:
          ConfigError: dimensions that `search.dims_per_code` does not divide.
        """
        size, dims = vectors.shape
        plan = plans.make_plan(size, dims, options) | {"soar": False}
        if plan["reorder"] and dims % plan["dims_per_code"]:
            raise ConfigError(
                "product codes of FAISS take so many dimensions each",
                where="config.model.embedding",
                expected=f"a multiple of search.dims_per_code, {plan['dims_per_code']}",
                found=dims,
            )
        mean = Mean.of(vectors)
        index = _empty(plan, seed)
        if plan["reorder"]:
            rng = np.random.default_rng(seed)
            count = min(len(vectors), plans.training_sample(plan))
            drawn = np.sort(rng.choice(len(vectors), count, replace=False))
            index.train(vectors[drawn] - mean.vector)
        _fill(index, vectors, mean)
        return cls(index, plan, mean)

    def search(
        self, queries: Float32[np.ndarray, "B E"], k: int
    ) -> tuple[Int32[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]:
        """See `Searcher.search`; some hits may be missed.

        A query whose partitions hold fewer than `k` rows is searched again in all of them.
        """
        check_queries(self, queries, k)
        rows, scores = self._search(queries, k, self.plan["leaves_searched"])
        short = (rows < 0).any(axis=1)
        if short.any() and self.plan["leaves"]:
            rows[short], scores[short] = self._search(queries[short], k, self.plan["leaves"])
        if (rows < 0).any():
            raise RealmError(
                "FAISS returned fewer hits than asked for",
                where=f"index of {self.size} rows",
                expected=f"{k} hits per query",
                found=int((rows >= 0).sum(axis=1).min()),
                fix="set search.kind to exact or mesh",
            )
        return rows, self.mean.true_scores(queries, scores)

    def _search(self, queries, k, leaves):
        """FAISS's answer; missing hits are row -1."""
        wanted = None
        if self.plan["reorder"]:
            partitions = faiss.SearchParametersIVF(nprobe=leaves) if leaves else None
            rescored = min(max(k, RESCORED_MORE * self.plan["reorder"]), self.size)
            wanted = faiss.IndexRefineSearchParameters(
                k_factor=rescored / k, base_index_params=partitions
            )
        scores, rows = self.index.search(np.ascontiguousarray(queries), k, params=wanted)
        return rows.astype(np.int32), scores

    def reencode(self, vectors: Float32[np.ndarray, "N E"]) -> None:
        """Empties the index and fills it again; nobody may search meanwhile."""
        check_vectors(vectors)
        self.index.reset()
        _fill(self.index, vectors, self.mean)

    def widen(self) -> bool:
        """See `plan.widen`."""
        return plans.widen(self.plan)

    def save(self, folder: Path) -> None:
        """Writes FAISS's file and its description."""
        faiss.write_index(self.index, str(folder / INDEX))
        self.mean.save(folder)
        write_description(folder, self, plan=self.plan)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "FaissSearcher":
        """Reads a saved index into memory."""
        description = read_description(folder)
        try:
            index = faiss.read_index(str(folder / INDEX))
        except RuntimeError as error:
            raise DamageError("FAISS cannot load the index", where=folder, found=error) from error
        if (index.ntotal, index.d) != (description["size"], description["dims"]):
            raise DamageError(
                "index is not the one described",
                where=folder / INDEX,
                expected=f"{description['size']} rows of {description['dims']}",
                found=f"{index.ntotal} rows of {index.d}",
            )
        mean = Mean.load(folder, description["dims"])
        return cls(index, plans.of_description(description), mean)


def _fill(index: Any, vectors: Float32[np.ndarray, "N E"], mean: Mean) -> None:
    """Rows in parts, for vectors may be memory-mapped."""
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        index.add(vectors[start : start + ROWS_AT_ONCE] - mean.vector)


def _empty(plan: plans.Plan, seed: int) -> Any:
    """An index of the plan's layout, without rows, whose clustering is seeded."""
    dims, product = plan["dims"], faiss.METRIC_INNER_PRODUCT
    if not plan["reorder"]:
        return faiss.IndexFlatIP(dims)
    codes = f"PQ{dims // plan['dims_per_code']}x4fs"
    layout = f"IVF{plan['leaves']},{codes}" if plan["leaves"] else codes
    base = faiss.index_factory(dims, layout, product)
    base.pq.cp.seed = seed
    if plan["leaves"]:
        base.cp.seed = seed
    precisions = {"bfloat16": "QT_bf16", "int8": "QT_8bit"}
    if plan["rescore"] in precisions:
        kind = getattr(faiss.ScalarQuantizer, precisions[plan["rescore"]])
        rescored = faiss.IndexScalarQuantizer(dims, kind, product)
    else:
        rescored = faiss.IndexFlatIP(dims)
    index = faiss.IndexRefine(base, rescored)
    index.own_fields = index.own_refine_index = True
    base.this.disown()
    rescored.this.disown()
    return index
