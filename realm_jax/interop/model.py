"""A model over imported weights: vectors, masked-LM logits and span scores."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Shaped
from ml_collections import ConfigDict

from realm_jax.errors import InputError
from realm_jax.interop.detect import QUESTIONS
from realm_jax.interop.names import NETWORK_PARTS, SPAN_HEAD
from realm_jax.interop.warm_start import fill_params
from realm_jax.interop.weights import Weights
from realm_jax.models.bert import Bert, Dense, MatrixInit
from realm_jax.models.embedder import Embedder
from realm_jax.models.reader import Reader
from realm_jax.models.span_head import SpanHead
from realm_jax.parallel.program import Program

Ids = Int[np.ndarray, "B L"] | Int[Array, "B L"]
Mask = Shaped[np.ndarray, "B L"] | Shaped[Array, "B L"]


class Core(nnx.Module):
    """BERT without a head."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        self.bert = Bert(model, vocabulary, MatrixInit(model, rngs))


class Pooled(nnx.Module):
    """BERT with its pooler, without REALM's projection."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = MatrixInit(model, rngs)
        self.bert = Bert(model, vocabulary, draw)
        self.pooler = Dense(model.hidden, model.hidden, ("hidden", "pooled"), draw)

    def embed(
        self, ids: Int[Array, "B L"], mask: Bool[Array, "B L"], segments: Int[Array, "B L"]
    ) -> Float[Array, "B H"]:
        """tanh of the pooler at [CLS]."""
        return jnp.tanh(self.pooler(self.bert(ids, mask, segments)[:, 0]))


# name -> (module, part of the module -> part of `interop.names`)
_MODULES: dict[str, tuple[type, dict[str, str]]] = {
    "embedder": (Embedder, NETWORK_PARTS["embedder"]),
    "pooled": (Pooled, {"bert": "bert", "pooler": "pooler"}),
    "core": (Core, {"bert": "bert"}),
    "reader": (Reader, NETWORK_PARTS["reader"]),
    SPAN_HEAD: (SpanHead, NETWORK_PARTS[SPAN_HEAD]),
}


class Model:
    """Weights opened by `realm_jax.interop.load`.

    Rows are `[CLS] … [SEP]` padded to one length L, at most `weights.sizes.positions`. `mask` is
    True (or 1) on real tokens, `segment_ids` is 0 or 1. Results are float32, without dropout. A
    method that needs a network the weights lack raises `InputError`.

    Attributes:
      weights: the opened weights, with `kind`, `sizes`, `networks` and `missing`.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        self._programs: dict[tuple[str, ...], Callable[..., Any]] = {}

    def embed(self, ids: Ids, mask: Mask, segment_ids: Ids) -> Float[Array, "B E"]:
        """Vectors of passages; also of queries if the weights have one tower for both.

        A BERT without REALM's projection returns its pooled [CLS] vector, so E is H.
        """
        if "embedder" not in self.weights.networks:
            return self._run(("pooled",), ("bert",), _embed_pooled, ids, mask, segment_ids)
        return self._run(("embedder",), ("embedder",), _embed, ids, mask, segment_ids)

    def embed_queries(self, ids: Ids, mask: Mask, segment_ids: Ids) -> Float[Array, "B E"]:
        """Vectors of queries, from the query tower if the weights have one, else as `embed`."""
        if QUESTIONS not in self.weights.networks:
            return self.embed(ids, mask, segment_ids)
        return self._run(("embedder",), (QUESTIONS,), _embed, ids, mask, segment_ids)

    def hidden(self, ids: Ids, mask: Mask, segment_ids: Ids) -> Float[Array, "B L H"]:
        """The last hidden layer of the reader's BERT; of the embedder's if there is no reader."""
        networks = ("reader", "bert", "question_reader", "embedder")
        return self._run(("core",), networks, _hidden, ids, mask, segment_ids)

    def mlm_logits(
        self, ids: Ids, mask: Mask, segment_ids: Ids, positions: Int[Any, "B M"]
    ) -> Float[Array, "B M V"]:
        """Logits over the vocabulary at the given positions."""
        networks = ("reader", "bert", "question_reader")
        rows = (ids, mask, segment_ids, positions)
        return self._run(("reader",), networks, _mlm_logits, *rows)

    def span_logits(self, ids: Ids, mask: Mask, segment_ids: Ids) -> Float[Array, "B L W"]:
        """Scores of answer spans; entry (b, i, w) is the span of tokens i .. i + w of row b.

        W is `max_span_width` of the weights (`sizes.widest`). Spans that are not wholly inside the
        passage (segment 1 without the closing `[SEP]`) have score -10,000.
        """
        spans = _span_logits(self.weights.sizes.widest)
        networks = ("question_reader", "reader")
        return self._run(("core", SPAN_HEAD), networks, spans, ids, mask, segment_ids)

    def _run(
        self, modules: tuple[str, ...], networks: tuple[str, ...], call: Any, *rows: Any
    ) -> Any:
        """Runs `call` on these modules, with the first of the networks that the weights have."""
        network = next((name for name in networks if name in self.weights.networks), None)
        if network is None:
            raise InputError(
                f"weights of kind {self.weights.kind} lack the network for this method",
                expected=" or ".join(networks),
                found=", ".join(self.weights.networks),
            )
        key = (network, *modules)
        if key not in self._programs:
            self._programs[key] = self._program(modules, network, call)
        self._require_known(*(np.asarray(part) for part in (rows[0], *rows[2:])))
        ids, mask, segments, *more = (jnp.asarray(part) for part in rows)
        return self._programs[key](ids, mask.astype(bool), segments, *more)

    def _require_known(self, ids: np.ndarray, segments: np.ndarray, *positions: np.ndarray) -> None:
        """Checks ids and lengths, because JAX takes indices out of range without an error."""
        sizes = self.weights.sizes
        limits = {
            "ids": (ids, sizes.vocabulary),
            "segment_ids": (segments, 2),
            "row length": (np.array([ids.shape[1] - 1]), sizes.positions),
        }
        if positions:
            limits["positions"] = (positions[0], ids.shape[1])
        for name, (values, limit) in limits.items():
            if values.size and not 0 <= values.min() <= values.max() < limit:
                raise InputError(
                    f"{name} out of range for these weights",
                    expected=f"0 to {limit - 1}",
                    found=int(values.max() if values.max() >= limit else values.min()),
                )

    def _program(self, modules: tuple[str, ...], network: str, call: Any) -> Callable[..., Any]:
        parts = self.weights.parts(network)
        sizes = self.weights.sizes
        graphs, parameters = {}, {}
        for name in modules:
            make, renaming = _MODULES[name]
            abstract = nnx.eval_shape(
                lambda make=make: make(sizes.model(), sizes.vocabulary, nnx.Rngs(0))
            )
            graphs[name], state = nnx.split(abstract, nnx.Param)
            given = {ours: parts[part] for ours, part in renaming.items() if part in parts}
            tree, _ = fill_params(nnx.to_pure_dict(state), given, f"{network}, {name}")
            self._require_all(tree, name)
            parameters[name] = jax.tree.map(jnp.asarray, tree)

        def forward(parameters: dict[str, Any], *rows: Array) -> Array:
            return call(*(nnx.merge(graphs[name], parameters[name]) for name in modules), *rows)

        program = Program("import/forward", forward)
        return lambda *rows: program(parameters, *rows)

    def _require_all(self, tree: dict[str, Any], module: str) -> None:
        lacking = [path for path, leaf in _leaves(tree) if not isinstance(leaf, np.ndarray)]
        if lacking:
            raise InputError(
                f"weights of kind {self.weights.kind} have an incomplete {module}",
                expected=f"{module}.{lacking[0]}",
                found=f"missing: {', '.join(self.weights.missing[:3])}"
                if self.weights.missing
                else "no array of it",
            )


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, leaf in tree.items():
        if isinstance(leaf, dict):
            yield from _leaves(leaf, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", leaf


def _embed(embedder: Embedder, *rows: Array) -> Array:
    return embedder.embed(*rows)


def _embed_pooled(pooled: Pooled, *rows: Array) -> Array:
    return pooled.embed(*rows)


def _hidden(core: Core, *rows: Array) -> Array:
    return core.bert(*rows)


def _mlm_logits(reader: Reader, *rows: Array) -> Array:
    return reader.mlm_logits(*rows)


def _span_logits(widest: int) -> Callable[..., Array]:
    def spans(core: Core, head: SpanHead, ids: Array, mask: Array, segments: Array) -> Array:
        return head.span_logits(core.bert(ids, mask, segments), mask, segments, widest)

    return spans
