"""The embedder: one tower for queries and passages (REALM section 3.1; towers tied as released)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Block, Dense, Draw, LayerNorm
from realm_jax.models.operations import dropout


class Embedder(nnx.Module):
    """BERT, its pooled first piece, a projection to E and a layer norm; lengths are kept."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = Draw(model, rngs)
        self.rate = model.dropout
        self.bert = Bert(model, vocabulary, draw)
        self.pooler = Dense(model.hidden, model.hidden, ("hidden", "pooled"), draw)
        self.projection = Dense(model.hidden, model.embedding, ("pooled", "embedding"), draw)
        self.norm = LayerNorm(model.embedding, "embedding")

    def embed(
        self,
        ids: Int[Array, "R L"],
        mask: Bool[Array, "R L"],
        segments: Int[Array, "R L"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "R E"]:
        """Float32 vectors whose inner product is the relevance score f(x, z) = query . passage.

        A query is `[CLS] x [SEP]` in segment 0; a passage `[CLS] title [SEP] body [SEP]` with the
        title in segment 0 and the body in segment 1.
        """
        keys = [None, None] if key is None else jax.random.split(key)
        places = jnp.zeros((len(ids), 1), jnp.int32)
        return self._pooled(self.bert.at(ids, mask, segments, places, keys[0])[:, 0], keys[1])

    def embed_packed(
        self,
        blocks: Sequence[Block],
        starts: Int[Array, "G N"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "G N E"]:
        """`embed` of the rows of streams (`Bert.packed`), row n from place `starts[:, n]` on."""
        keys = [None, None] if key is None else jax.random.split(key)
        return self._pooled(self.bert.packed(blocks, starts, keys[0]), keys[1])

    def _pooled(
        self, first: Float[Array, "*rows H"], key: Key[Array, ""] | None
    ) -> Float[Array, "*rows E"]:
        pooled = jnp.tanh(self.pooler(first.astype(jnp.float32)))
        return dropout(self.norm(self.projection(pooled)), self.rate, key)
