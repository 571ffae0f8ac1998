"""The reader: the knowledge-augmented encoder of query and passage (REALM section 3.1)."""

from collections.abc import Sequence

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Dense, LayerNorm, MatrixInit, bias
from realm_jax.models.operations import product
from realm_jax.models.whole_tiles import Block


class Reader(nnx.Module):
    """BERT with a masked-LM head; the output matrix is tied to the word embeddings."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = MatrixInit(model, rngs)
        self.bert = Bert(model, vocabulary, draw)
        self.transform = Dense(model.hidden, model.hidden, ("hidden", "transform"), draw)
        self.norm = LayerNorm(model.hidden)
        self.bias = bias((vocabulary,), ("vocabulary",))

    def mlm_logits(
        self,
        ids: Int[Array, "R J"],
        mask: Bool[Array, "R J"],
        segments: Int[Array, "R J"],
        positions: Int[Array, "R M"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "R M V"]:
        """Float32 logits over the vocabulary at the masked positions.

        A row is `[CLS] x [SEP] body [SEP]`: x in segment 0, the passage body in segment 1, without
        the title.

        Args:
          ids: word-piece ids.
          mask: True on real tokens.
          segments: 0 or 1.
          positions: of the masked tokens.
          key: random key of dropout; None in evaluation.
        """
        return self.predict(self.bert.at(ids, mask, segments, positions, key))

    def mlm_logits_packed(
        self,
        blocks: Sequence[Block],
        positions: Int[Array, "G M"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "G M V"]:
        """`mlm_logits` at positions of packed streams (`Bert.packed`)."""
        return self.predict(self.bert.packed(blocks, positions, key))

    def predict(self, hidden: Float[Array, "R M H"]) -> Float[Array, "R M V"]:
        """The masked-LM head: hidden vectors -> logits."""
        transformed = self.norm(jax.nn.gelu(self.transform(hidden), self.bert.approximate))
        logits = product("rmh,vh->rmv", transformed, self.bert.word[...])
        return logits + self.bias[...][None, None]
