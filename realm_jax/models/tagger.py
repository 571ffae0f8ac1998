"""The tagger: BERT with a linear layer over each token (Devlin et al., 2019, section 5.3)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key
from ml_collections import ConfigDict

from realm_jax.models.bert import Bert, Dense, MatrixInit
from realm_jax.models.operations import dropout

WORD_SHAPES = 8  # rows of the shape embedding; `tagging.words.SHAPES` names them


class Tagger(nnx.Module):
    """Scores BIO labels for every token; the label of a word is read at its first token.

    The vocabulary is uncased, but capitals identify names. Therefore the shape of a word
    (`tagging.words.shape`) has an embedding that is added to BERT's input. It is initialised to
    zero, so a pre-trained BERT is unchanged at step 0.
    """

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = MatrixInit(model, rngs)
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
        """Float32 logits of the BIO labels of `config.model.entities` for every token.

        Args:
          ids: word-piece ids.
          mask: True on real tokens.
          shapes: index of the word shape of each token, 0 on special tokens and padding.
          key: random key of dropout; None in evaluation.
        """
        keys = [None, None] if key is None else jax.random.split(key)
        hidden = self.bert(ids, mask, jnp.zeros_like(ids), keys[0], self.shape[...][shapes])
        return self.score(dropout(hidden, self.rate, keys[1])).astype(jnp.float32)
