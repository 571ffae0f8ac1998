"""The embedder of queries and passages (REALM section 3.1).

One tower serves both, as in the released model; the paper writes Embed_input and Embed_doc.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Block, Dense, LayerNorm, MatrixInit
from realm_jax.models.operations import dropout


class Embedder(nnx.Module):
    """BERT, a tanh pooler of [CLS], a projection to E and a layer norm; no L2 normalisation."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = MatrixInit(model, rngs)
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
        """Float32 vectors; the inner product of query and passage is the relevance f(x, z).

        A query is `[CLS] x [SEP]` in segment 0. A passage is `[CLS] title [SEP] body [SEP]` with
        the title in segment 0 and the body in segment 1.

        Args:
          ids: word-piece ids.
          mask: True on real tokens.
          segments: 0 or 1.
          key: random key of dropout; None in evaluation.
        """
        keys = [None, None] if key is None else jax.random.split(key)
        first = jnp.zeros((len(ids), 1), jnp.int32)
        return self._pooled(self.bert.at(ids, mask, segments, first, keys[0])[:, 0], keys[1])

    def embed_packed(
        self,
        blocks: Sequence[Block],
        starts: Int[Array, "G N"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "G N E"]:
        """`embed` of packed rows (`Bert.packed`); row n of a stream begins at `starts[:, n]`."""
        keys = [None, None] if key is None else jax.random.split(key)
        return self._pooled(self.bert.packed(blocks, starts, keys[0]), keys[1])

    def _pooled(
        self, first: Float[Array, "*rows H"], key: Key[Array, ""] | None
    ) -> Float[Array, "*rows E"]:
        pooled = jnp.tanh(self.pooler(first.astype(jnp.float32)))
        return dropout(self.norm(self.projection(pooled)), self.rate, key)
