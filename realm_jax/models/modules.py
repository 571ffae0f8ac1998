"""The networks of a run as one tree of parameters, and their axis names."""

from types import SimpleNamespace
from typing import Any

import jax
from flax import nnx
from ml_collections import ConfigDict

from realm_jax.models.embedder import Embedder
from realm_jax.models.reader import Reader
from realm_jax.models.span_head import SpanHead
from realm_jax.models.tagger import Tagger

Parameters = dict[str, Any]  # network name to nested dict of arrays

NETWORKS = {"embedder": Embedder, "reader": Reader, "span_head": SpanHead, "tagger": Tagger}


class Modules:
    """Some of the networks by name; knows how to draw, shape, name and bind their parameters."""

    def __init__(self, model: ConfigDict, vocabulary: int, names: tuple[str, ...]):
        self.names = names
        self._make = lambda name, rngs: NETWORKS[name](model, vocabulary, rngs)
        self._graphs: dict[str, Any] = {}
        self.axes: Parameters = {}
        self.shapes: Parameters = {}
        for name in names:
            abstract = nnx.eval_shape(lambda name=name: self._make(name, nnx.Rngs(0)))
            graph, state = nnx.split(abstract, nnx.Param)
            self._graphs[name] = graph
            self.shapes[name] = nnx.to_pure_dict(state)
            self.axes[name] = nnx.to_pure_dict(_axes(state))

    def init(self, key: jax.Array) -> Parameters:
        """Fresh parameters; trace it under jit with output shardings to make them in place."""
        made = {}
        for number, name in enumerate(sorted(NETWORKS)):
            if name in self.names:
                network = self._make(name, nnx.Rngs(jax.random.fold_in(key, number)))
                made[name] = nnx.to_pure_dict(nnx.state(network, nnx.Param))
        return made

    def bind(self, parameters: Parameters) -> SimpleNamespace:
        """The networks with these parameters, as attributes by name."""
        return SimpleNamespace(
            **{name: nnx.merge(self._graphs[name], parameters[name]) for name in self.names}
        )


def _axes(state: nnx.State) -> nnx.State:
    flat = [(path, leaf.get_metadata()["axes"]) for path, leaf in nnx.to_flat_state(state)]
    return nnx.from_flat_state(flat)
