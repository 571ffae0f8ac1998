"""The tagger: BERT with a linear layer over each piece (Devlin et al., 2019, section 5.3)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Dense, Draw
from realm_jax.models.operations import dropout

WORD_SHAPES = 8  # rows of the shape embedding; `tagging.words.SHAPES` names them


class Tagger(nnx.Module):
    """Scores the label of each word on its first piece.

    The pieces are uncased, and capitals tell much of a name. So the way a word is written
    (`tagging.words.shape`) is an embedding of its own, added to BERT's; it begins at zero, so that a
    BERT made elsewhere begins as it was.
    """

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = Draw(model, rngs)
        self.rate = model.dropout
        self.bert = Bert(model, vocabulary, draw)
        self.shape = nnx.Param(
            jnp.zeros((WORD_SHAPES, model.hidden), jnp.float32), axes=("shapes", "hidden")
        )
        classes = 1 + 2 * len(model.entities.split())  # O, and B and I of each type
        self.score = Dense(model.hidden, classes, ("hidden", "classes"), draw)

    def label_logits(
        self,
        ids: Int[Array, "R L"],
        mask: Bool[Array, "R L"],
        shapes: Int[Array, "R L"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "R L C"]:
        """Float32 scores of the labels of `config.model.entities` for every piece."""
        keys = [None, None] if key is None else jax.random.split(key)
        hidden = self.bert(ids, mask, jnp.zeros_like(ids), keys[0], self.shape[...][shapes])
        return self.score(dropout(hidden, self.rate, keys[1])).astype(jnp.float32)
