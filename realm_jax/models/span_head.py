"""The open-QA head on the reader: scores answer spans in a passage (ORQA, REALM_FACTS 1.8)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int
from ml_collections import ConfigDict

from realm_jax.models.bert import Dense, Draw, LayerNorm

_NORM_EPS = 1e-3  # of this head alone, as in the released model
INVALID_SPAN_SCORE = -10_000.0  # of spans that are not wholly inside the passage body


class SpanHead(nnx.Module):
    """A perceptron over (first piece + last piece) of each span up to a fixed width."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = Draw(model, rngs)
        width = model.span or max(model.hidden // 3, 32)
        self.ends = Dense(model.hidden, 2 * width, ("hidden", "span"), draw)
        self.norm = LayerNorm(width, "span", _NORM_EPS)
        self.score = Dense(width, 1, ("span", "one"), draw)

    def span_logits(
        self,
        hidden: Float[Array, "R J H"],
        mask: Bool[Array, "R J"],
        segments: Int[Array, "R J"],
        widest: int,
    ) -> Float[Array, "R J W"]:
        """Float32 scores; entry (r, i, w) is the span of pieces i .. i + w of row r.

        Spans not wholly inside the body (segment 1, before its closing `[SEP]`) score -10,000.

        Args:
          hidden: the reader's hidden vectors of the joint rows.
          mask: true on real pieces.
          segments: 1 on the passage body.
          widest: W, in pieces.
        """
        start, end = jnp.split(self.ends(hidden).astype(jnp.float32), 2, axis=-1)
        length = hidden.shape[1]
        body = mask & (segments == 1)
        inside = body & jnp.roll(body, -1, axis=1).at[:, -1].set(False)
        reach = jnp.arange(length)[:, None] + jnp.arange(widest)[None, :]
        last = jnp.minimum(reach, length - 1)
        both = jax.nn.relu(start[:, :, None] + end[:, last])
        scores = self.score(self.norm(both))[..., 0]
        possible = inside[:, :, None] & inside[:, last] & (reach < length)[None]
        return jnp.where(possible, scores, INVALID_SPAN_SCORE)
