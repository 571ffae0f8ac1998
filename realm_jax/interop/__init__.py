"""Other people's weights: `load(path)` gives a model that computes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from realm_jax.interop.model import Model


def load(path: str, *, heads: int | None = None) -> Model:
    """Opens weights: what `realm import` wrote, a Hugging Face folder, a TensorFlow checkpoint.

    Args:
      path: see `interop.sources.open_source`; or a folder with one such folder per network.
      heads: attention heads, for a TensorFlow checkpoint that does not say how many.

    Raises:
      InputError: no weights there.
      DamageError: a file that is cut short.
      MismatchError: arrays and description do not belong together.
    """
    from realm_jax.interop.model import Model
    from realm_jax.interop.weights import open_weights

    return Model(open_weights(path, heads))
