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

_WIDTHS = (1.0, 0.75, 0.5, 0.25)  # row widths, as shares of lengths.passage: one trace for each


class PassageEmbedder:
    """Embeds passages of one store with the parameters of one embedder, `parameters`."""

    def __init__(self, config: ConfigDict, store: PassageStore, parameters: dict[str, Any]):
        self._store, self.parameters = store, jax.device_put(parameters)
        self._lengths = np.minimum(store.lengths(), config.lengths.passage)
        self._widths = sorted({max(8, int(w * config.lengths.passage)) for w in _WIDTHS})
        self._budget = config.builder.batch_pieces
        self._embed = embed_function(config.model.to_json(), store.vocabulary.size)
        self._dims = config.model.embedding

    def vectors(self, numbers: Int64[np.ndarray, "N"]) -> Float32[np.ndarray, "N E"]:
        """Vectors of these passages, in this order."""
        out = np.empty((len(numbers), self._dims), np.float32)
        pending: list[tuple[np.ndarray, Float[Array, "R E"]]] = []
        for places, width in self._batches(numbers):
            size = max(1, self._budget // width)
            padded = np.resize(numbers[places], size)  # one shape for each width, so one trace
            rows = passage_rows(self._store, padded, width)
            pending.append((places, self._embed(self.parameters, rows)))
            if len(pending) > 1:  # the next batch is laid out while this one is computed
                _take(out, *pending.pop(0))
        for places, computed in pending:
            _take(out, places, computed)
        return out

    def _batches(self, numbers: Int64[np.ndarray, "N"]) -> Iterator[tuple[np.ndarray, int]]:
        fitting = np.searchsorted(self._widths, self._lengths[numbers])
        for bucket, width in enumerate(self._widths):
            members = np.flatnonzero(fitting == bucket)
            size = max(1, self._budget // width)
            for start in range(0, len(members), size):
                yield members[start : start + size], width


@functools.lru_cache(maxsize=2)
def embed_function(model_json: str, vocabulary: int) -> Callable[..., Float[Array, "R E"]]:
    """Kept between the refreshes of an index, so that each width is compiled once per process."""
    modules = Modules(ConfigDict(json.loads(model_json)), vocabulary, ("embedder",))
    return jax.jit(
        lambda parameters, rows: modules.bind({"embedder": parameters}).embedder.embed(*rows)
    )


def _take(out: np.ndarray, places: np.ndarray, computed: Float[Array, "R E"]) -> None:
    out[places] = np.asarray(computed)[: len(places)]
