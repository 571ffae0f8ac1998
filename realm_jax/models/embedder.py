"""The embedder of queries and passages (REALM section 3.1), and its other forms.

One tower serves both, as in the released model; the paper writes Embed_input and Embed_doc. The
form is a choice of `config.model`: how the hidden vectors are pooled, what is projected, whether
vectors have unit length, and the scale of the scores. Imported encoders have their own form.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Int, Key
from ml_collections import ConfigDict, FrozenConfigDict

from realm_jax.config_checks import OVER_TOKENS, dense_layers
from realm_jax.models.bert import Bert, Dense, LayerNorm, MatrixInit
from realm_jax.models.operations import dropout, relevance_scores
from realm_jax.models.pooling import pool_slots, slots_of
from realm_jax.models.whole_tiles import Block

# Change of a learned log temperature or null score for a change of 1 of its param. Adam moves a
# param by about the learning rate per step; 2e-5 would hardly move these two in a short stage.
_LEARNED_STEP = 100.0
_LEAST_NORM = 1e-12
_ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


def temperature_of(model: ConfigDict, params: Mapping[str, Any]) -> Any:
    """The temperature T of the scores: f(x, z) is the inner product divided by T.

    Args:
      model: `config.model`.
      params: of the embedder, arrays of numpy or JAX.
    """
    if not model.learn_temperature:
        return model.temperature
    return model.temperature * jnp.exp(_LEARNED_STEP * params["temperature_scale"][0])


def null_score_of(model: ConfigDict, params: Mapping[str, Any]) -> Any:
    """f(x, null) for `model.null_score` `fixed` or `learned`; None: that of its embedded row."""
    if model.null_score == "embedded":
        return None
    learned = params["null_bias"][0] if model.null_score == "learned" else 0.0
    return (model.null_value + _LEARNED_STEP * learned) / temperature_of(model, params)


class Embedder(nnx.Module):
    """BERT, pooling, projection, and optionally unit length.

    The paper's form is the tanh pooler of [CLS], a projection to E and a layer norm.
    """

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = MatrixInit(model, rngs)
        self.model, self.rate = FrozenConfigDict(model), model.dropout
        self.bert = Bert(model, vocabulary, draw)
        if model.pooling == "pooler":
            self.pooler = Dense(model.hidden, model.hidden, ("hidden", "pooled"), draw)
        if model.projection == "layer_norm":
            self.projection = Dense(model.hidden, model.embedding, ("pooled", "embedding"), draw)
            self.norm = LayerNorm(model.embedding, "embedding")
        width = model.hidden
        for number, (size, _) in enumerate(dense_layers(model.projection)):
            setattr(self, f"dense_{number}", Dense(width, size, ("pooled", "embedding"), draw))
            width = size
        if model.learn_temperature:
            self.temperature_scale = _learned_number()
        if model.null_score == "learned":
            self.null_bias = _learned_number()

    def embed(
        self,
        ids: Int[Array, "R L"],
        mask: Bool[Array, "R L"],
        segments: Int[Array, "R L"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "R E"]:
        """Float32 vectors; see `scores` for the relevance f(x, z).

        A query is `[CLS] x [SEP]` in segment 0. A passage is `[CLS] title [SEP] body [SEP]` with
        the title in segment 0 and the body in segment 1, or `[CLS] title body [SEP]` in segment 0
        (`model.passage_row`).

        Args:
          ids: word-piece ids.
          mask: True on real tokens.
          segments: 0 or 1.
          key: random key of dropout; None in evaluation.
        """
        keys = [None, None] if key is None else jax.random.split(key)
        if self.model.pooling in OVER_TOKENS:
            hidden = self.bert(ids, mask, segments, keys[0])
            block = (ids[:, None], mask[:, None], segments[:, None])
            pooled = pool_slots(self.model.pooling, hidden, [block])[:, 0]
            return self._vectors(pooled, keys[1])
        first = jnp.zeros((len(ids), 1), jnp.int32)
        return self._vectors(self.bert.at(ids, mask, segments, first, keys[0])[:, 0], keys[1])

    def embed_packed(
        self,
        blocks: Sequence[Block],
        starts: Int[Array, "G N"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "G N E"]:
        """`embed` of packed rows (`Bert.packed`); row n of a stream begins at `starts[:, n]`."""
        keys = [None, None] if key is None else jax.random.split(key)
        if self.model.pooling in OVER_TOKENS:
            hidden = self.bert.packed(blocks, None, keys[0])
            pooled = pool_slots(self.model.pooling, hidden, blocks)
            slots = slots_of(blocks, starts)[..., None]
            return self._vectors(jnp.take_along_axis(pooled, slots, axis=1), keys[1])
        return self._vectors(self.bert.packed(blocks, starts, keys[0]), keys[1])

    def scores(
        self, spec: str, queries: Float[Array, "*left"], passages: Float[Array, "*right"]
    ) -> Float[Array, "*out"]:
        """Relevance scores f(x, z): inner products divided by the temperature.

        Args:
          spec: einsum specification.
          queries: vectors of `embed`.
          passages: vectors of `embed`, float32 or float16.
        """
        return relevance_scores(spec, self.scaled(queries), passages)

    def scaled(self, queries: Float[Array, "*rows E"]) -> Float[Array, "*rows E"]:
        """Query vectors divided by the temperature: their inner products are relevance scores."""
        temperature = temperature_of(self.model, self._learned())
        fixed_at_1 = not self.model.learn_temperature and temperature == 1.0
        return queries if fixed_at_1 else queries / temperature

    def with_null_score(self, scores: Float[Array, "*rows K"]) -> Float[Array, "*rows K"]:
        """Scores whose candidate 0, the null passage, has the score of `model.null_score`."""
        value = null_score_of(self.model, self._learned())
        return scores if value is None else scores.at[..., 0].set(value)

    def _learned(self) -> dict[str, Array]:
        names = ("temperature_scale", "null_bias")
        return {name: getattr(self, name)[...] for name in names if hasattr(self, name)}

    def _vectors(
        self, pooled: Float[Array, "*rows H"], key: Key[Array, ""] | None
    ) -> Float32[Array, "*rows E"]:
        x = pooled.astype(jnp.float32)
        if self.model.pooling == "pooler":
            x = jnp.tanh(self.pooler(x))
        if self.model.projection == "layer_norm":
            x = self.norm(self.projection(x))
        for number, (_, activation) in enumerate(dense_layers(self.model.projection)):
            x = _ACTIVATIONS[activation](getattr(self, f"dense_{number}")(x))
        if self.model.normalise:
            squares = jnp.square(x).sum(-1, keepdims=True)
            return x * lax.rsqrt(jnp.maximum(squares, _LEAST_NORM**2))
        return dropout(x, self.rate, key)


def _learned_number() -> nnx.Param:
    return nnx.Param(jnp.zeros((1,), jnp.float32), axes=("one",))
