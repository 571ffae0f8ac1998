"""The reader: the knowledge-augmented encoder over query and passage (REALM section 3.1)."""

from collections.abc import Sequence

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Block, Dense, Draw, LayerNorm, bias
from realm_jax.models.operations import product


class Reader(nnx.Module):
    """BERT with a masked-LM head whose decoder is the table of word vectors."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = Draw(model, rngs)
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
        """Float32 scores of every word piece at the given positions only.

        `[CLS] x [SEP] body [SEP]`: x in segment 0, the passage body in segment 1, no title. Masked
        positions are gathered within the last layer, before its feed-forward part.
        """
        return self.predict(self.bert.at(ids, mask, segments, positions, key))

    def mlm_logits_packed(
        self,
        blocks: Sequence[Block],
        places: Int[Array, "G M"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "G M V"]:
        """`mlm_logits` at these places of streams (`Bert.packed`)."""
        return self.predict(self.bert.packed(blocks, places, key))

    def predict(self, hidden: Float[Array, "R M H"]) -> Float[Array, "R M V"]:
        """`mlm_logits` of BERT's hidden vectors at the masked positions."""
        known = self.norm(jax.nn.gelu(self.transform(hidden), self.bert.approximate))
        return product("rmh,vh->rmv", known, self.bert.word[...]) + self.bias[...]
