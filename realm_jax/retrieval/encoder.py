"""Passages to vectors, in batches of like length: a long row never makes short ones pay."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Float32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import passage_rows
from realm_jax.models.modules import Modules

_WIDTHS = 12  # row widths up to lengths.passage: one trace for each that is used
_MOST_ON_CPU = 1200  # pieces of a batch there: what its caches hold is a quarter quicker


class PassageEmbedder:
    """Embeds passages of one store with the parameters of one embedder."""

    def __init__(self, config: ConfigDict, store: PassageStore, parameters: dict[str, Any]):
        self._store, self._compute = store, config.model.compute
        self.use(parameters)
        self._lengths = np.minimum(store.lengths(), config.lengths.passage)
        longest, most = config.lengths.passage, config.builder.batch_pieces
        self._widths = sorted({max(8, -(-longest * n // _WIDTHS)) for n in range(1, _WIDTHS + 1)})
        self._budget = min(most, _MOST_ON_CPU) if jax.default_backend() == "cpu" else most
        self._embed = embed_function(config.model.to_json(), store.vocabulary.size)
        self._dims = config.model.embedding

    def use(self, parameters: dict[str, Any]) -> None:
        """Embeds with these parameters from now on."""
        self._parameters = _to_multiply(parameters, dtype=self._compute)

    def vectors(self, numbers: Int64[np.ndarray, "N"]) -> Float32[np.ndarray, "N E"]:
        """Vectors of these passages, in this order."""
        out = np.empty((len(numbers), self._dims), np.float32)
        pending: list[tuple[np.ndarray, Float[Array, "R E"]]] = []
        for places, width in self._batches(numbers):
            size = max(1, self._budget // width)
            padded = np.resize(numbers[places], size)  # one shape for each width, so one trace
            rows = passage_rows(self._store, padded, width)
            pending.append((places, self._embed(self._parameters, rows)))
            if len(pending) > 1:  # the next batch is laid out while this one is computed
                _take(out, *pending.pop(0))
        for places, computed in pending:
            _take(out, places, computed)
        return out

    def _batches(self, numbers: Int64[np.ndarray, "N"]) -> Iterator[tuple[np.ndarray, int]]:
        """Places in `numbers` of like length, and a width; what fills no batch goes to the next."""
        fitting = np.searchsorted(self._widths, self._lengths[numbers])
        waiting, widest = np.empty(0, np.int64), fitting.max(initial=0)
        for bucket, width in enumerate(self._widths[: widest + 1]):
            waiting = np.concatenate([waiting, np.flatnonzero(fitting == bucket)])
            size = max(1, self._budget // width)
            stop = len(waiting) if bucket == widest else len(waiting) // size * size
            for start in range(0, stop, size):
                yield waiting[start : min(start + size, stop)], width
            waiting = waiting[stop:]


@functools.lru_cache(maxsize=2)
def embed_function(model_json: str, vocabulary: int) -> Callable[..., Float[Array, "R E"]]:
    """Kept between the refreshes of an index, so that each width is compiled once per process."""
    modules = Modules(ConfigDict(json.loads(model_json)), vocabulary, ("embedder",))
    return jax.jit(
        lambda parameters, rows: modules.bind({"embedder": parameters}).embedder.embed(*rows)
    )


@functools.partial(jax.jit, static_argnames="dtype")
def _to_multiply(parameters: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Kernels in the dtype of the products, once and not for each batch."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf.astype(dtype) if path[-1].key.endswith("kernel") else leaf,
        parameters,
    )


def _take(out: np.ndarray, places: np.ndarray, computed: Float[Array, "R E"]) -> None:
    out[places] = np.asarray(computed)[: len(places)]
