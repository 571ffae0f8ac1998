"""The networks of a run as one parameter tree with axis names."""

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
    """Networks by name: initialises their parameters, describes them and binds them.

    Args:
      model: `config.model`.
      vocabulary: V.
      names: keys of `NETWORKS`.

    Attributes:
      axes: for each parameter, the names of its axes.
      shapes: for each parameter, its shape and dtype.
    """

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
        """Initial parameters, float32. Under jit with output shardings they are created sharded.

        The values of a network depend on `key` and its name only, not on the other networks.
        """
        params = {}
        for number, name in enumerate(sorted(NETWORKS)):
            if name in self.names:
                network = self._make(name, nnx.Rngs(jax.random.fold_in(key, number)))
                params[name] = nnx.to_pure_dict(nnx.state(network, nnx.Param))
        return params

    def bind(self, parameters: Parameters, reference: Parameters | None = None) -> SimpleNamespace:
        """The networks with these parameters, as attributes of a namespace.

        Args:
          parameters: of all networks.
          reference: other parameters of some of them; attribute `reference` has these networks.
        """
        bound = {name: nnx.merge(self._graphs[name], parameters[name]) for name in self.names}
        if reference:
            bound["reference"] = SimpleNamespace(
                **{name: nnx.merge(self._graphs[name], reference[name]) for name in reference}
            )
        return SimpleNamespace(**bound)


def _axes(state: nnx.State) -> nnx.State:
    flat = [(path, leaf.get_metadata()["axes"]) for path, leaf in nnx.to_flat_state(state)]
    return nnx.from_flat_state(flat)
