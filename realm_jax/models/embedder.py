"""The embedder: one tower for queries and passages (REALM section 3.1; towers tied as released)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Dense, Draw, LayerNorm, dropout


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
        first = self.bert(ids, mask, segments, keys[0])[:, 0].astype(jnp.float32)
        vectors = self.norm(self.projection(jnp.tanh(self.pooler(first))))
        return dropout(vectors, self.rate, keys[1])
