"""Reads and writes weights of other frameworks: `load(path)` returns a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from realm_jax.interop.model import Model


def load(path: str, *, heads: int | None = None) -> Model:
    """Loads weights from a folder of `realm import`, a Hugging Face folder or a TF checkpoint.

    Args:
      path: see `interop.sources.open_source`; or a folder with one such folder per network.
      heads: number of attention heads, for a TensorFlow checkpoint that does not store it.

    Raises:
      InputError: there are no weights at `path`.
      DamageError: a file is truncated or damaged.
      MismatchError: the arrays do not fit the description.
    """
    from realm_jax.interop.model import Model
    from realm_jax.interop.weights import open_weights

    return Model(open_weights(path, heads))
