"""Approximate search with FAISS's fast scan of product codes; no other module imports it.

It follows the same plan as a ScaNN index: partitions, 4-bit codes of one or two dimensions, and
rescored hits. `benchmarks/search.py` compares the two. Needs the extra `[faiss]`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from realm_jax.errors import ConfigError, DamageError
from realm_jax.retrieval import search_plan
from realm_jax.retrieval.centering import Mean
from realm_jax.retrieval.planned_searcher import PlannedSearcher
from realm_jax.retrieval.searcher import check_vectors
from realm_jax.retrieval.searcher_files import read_description, write_description

try:
    import faiss
except ImportError as error:
    raise ConfigError(
        "this kind of searcher needs a package that is not installed",
        where="config.search.kind",
        expected="faiss-cpu",
        found="not installed",
        fix="pip install -e '.[faiss]', or set search.kind to scann",
    ) from error

INDEX = "index.faiss"
ROWS_PER_ADD = 1 << 18
# FAISS's codes lack ScaNN's anisotropic weighting, so more hits are rescored. On 120,000 clustered
# rows with 100 rescored hits, recall@10 is 0.73 (ScaNN: over 0.95); with 400 it is 0.998.
RESCORING_FACTOR = 4


class FaissSearcher(PlannedSearcher):
    """A built or loaded FAISS index; `soar` of its plan is not used."""

    kind, backend = "faiss", "FAISS"

    @classmethod
    def build(
        cls, vectors: Float32[np.ndarray, "N E"], options: Any, seed: int = 0
    ) -> "FaissSearcher":
        """Trains an index over `vectors` and fills it; `options` is `config.search`.

        Raises:
          ConfigError: `search.dims_per_code` does not divide E.
        """
        size, dims = vectors.shape
        plan = _make_plan(size, dims, options)
        if plan["reorder"] and dims % plan["dims_per_code"]:
            raise ConfigError(
                "the embedding does not divide into product codes",
                where="config.model.embedding",
                expected=f"a multiple of search.dims_per_code, {plan['dims_per_code']}",
                found=dims,
                fix=f"set search.dims_per_code to a divisor of {dims}, such as 1",
            )
        mean = Mean.of(vectors)
        index = _empty(plan, seed)
        if plan["reorder"]:
            rng = np.random.default_rng(seed)
            count = min(len(vectors), search_plan.training_sample(plan))
            drawn = np.sort(rng.choice(len(vectors), count, replace=False))
            index.train(vectors[drawn] - mean.vector)
        _fill(index, vectors, mean)
        return cls(index, plan, mean)

    def _search(self, queries, k, leaves):
        """See `PlannedSearcher`; missing hits are row -1."""
        parameters = None
        if self.plan["reorder"]:
            partitions = faiss.SearchParametersIVF(nprobe=leaves) if leaves else None
            rescored = min(max(k, RESCORING_FACTOR * self.plan["reorder"]), self.size)
            parameters = faiss.IndexRefineSearchParameters(
                k_factor=rescored / k, base_index_params=partitions
            )
        scores, rows = self.index.search(np.ascontiguousarray(queries), k, params=parameters)
        return rows.astype(np.int32), scores, rows >= 0

    def _plan(self, options: Any) -> search_plan.Plan:
        return _make_plan(self.size, self.dims, options)

    def reencode(self, vectors: Float32[np.ndarray, "N E"]) -> None:
        """See `ReencodableSearcher.reencode`."""
        check_vectors(vectors)
        self.index.reset()
        _fill(self.index, vectors, self.mean)

    def save(self, folder: Path) -> None:
        """Writes FAISS's file and `searcher.json`."""
        faiss.write_index(self.index, str(folder / INDEX))
        self.mean.save(folder)
        write_description(folder, self, plan=self.plan)

    @classmethod
    def load(cls, folder: Path, mesh: Any = None) -> "FaissSearcher":
        """Loads a saved index into memory."""
        description = read_description(folder)
        try:
            index = faiss.read_index(str(folder / INDEX))
        except RuntimeError as error:
            raise DamageError("FAISS cannot load the index", where=folder, found=error) from error
        if (index.ntotal, index.d) != (description["size"], description["dims"]):
            raise DamageError(
                "the index does not match its description",
                where=folder / INDEX,
                expected=f"{description['size']} rows of {description['dims']}",
                found=f"{index.ntotal} rows of {index.d}",
            )
        mean = Mean.load(folder, description["dims"])
        return cls(index, search_plan.of_description(description), mean)


def _make_plan(size: int, dims: int, options: Any) -> search_plan.Plan:
    """The plan without what this searcher lacks: SOAR, and partitions of unquantised vectors."""
    plan = search_plan.make_plan(size, dims, options) | {"soar": False}
    return plan if plan["reorder"] else plan | {"leaves": 0, "leaves_searched": 0}


def _fill(index: Any, vectors: Float32[np.ndarray, "N E"], mean: Mean) -> None:
    """Adds the rows in blocks, because `vectors` may be memory-mapped."""
    for start in range(0, len(vectors), ROWS_PER_ADD):
        index.add(vectors[start : start + ROWS_PER_ADD] - mean.vector)


def _empty(plan: search_plan.Plan, seed: int) -> Any:
    """Creates an empty, untrained index for a plan, with seeded clustering."""
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
