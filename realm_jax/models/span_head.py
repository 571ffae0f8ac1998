"""The open-QA head of the reader: scores answer spans in a passage (ORQA section 4)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int
from ml_collections import ConfigDict

from realm_jax.models.bert import Dense, LayerNorm, MatrixInit

_NORM_EPS = 1e-3  # as in the released model, where only this head uses it
INVALID_SPAN_SCORE = -10_000.0  # of spans that are not wholly inside the passage body


class SpanHead(nnx.Module):
    """A two-layer perceptron over the first and last token of each span."""

    def __init__(self, model: ConfigDict, vocabulary: int, rngs: nnx.Rngs):
        draw = MatrixInit(model, rngs)
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
        """Float32 scores; entry (r, i, w) is the span of tokens i .. i + w of row r.

        Spans that are not wholly inside the body (segment 1, before the closing `[SEP]`) have
        score `INVALID_SPAN_SCORE`.

        Args:
          hidden: the reader's hidden vectors of the joint rows.
          mask: True on real tokens.
          segments: 1 on the passage body.
          widest: W, the longest span, in tokens.
        """
        start, end = jnp.split(self.ends(hidden).astype(jnp.float32), 2, axis=-1)
        length = hidden.shape[1]
        body = mask & (segments == 1)
        inside = body & jnp.roll(body, -1, axis=1).at[:, -1].set(False)
        ends = jnp.arange(length)[:, None] + jnp.arange(widest)[None, :]
        last = jnp.minimum(ends, length - 1)
        features = jax.nn.relu(start[:, :, None] + end[:, last])
        scores = self.score(self.norm(features))[..., 0]
        possible = inside[:, :, None] & inside[:, last] & (ends < length)[None]
        return jnp.where(possible, scores, INVALID_SPAN_SCORE)
