"""Makes a config like the weights that it starts from (`model.like_start`)."""

from collections.abc import Container
from dataclasses import asdict

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.interop.form import PAPER
from realm_jax.interop.metadata import Sizes
from realm_jax.interop.warm_start import weights_folder
from realm_jax.interop.weights import open_weights

_OF_SCORES = ("null_score", "null_value")  # kept as the recipe has them, unless the weights differ


def load_config(path: str | None, overrides: dict[str, str]) -> ConfigDict:
    """`config.load`, with the sizes and form of `model.start` where the config asks for them.

    Args:
      path: name of a recipe or path of a Python file; None for the defaults.
      overrides: dotted key -> value as text. Their keys are never changed.

    Raises:
      ConfigError: see `config.load`.
      RealmError: the weights cannot be opened.
    """
    config = config_lib.load_unchecked(path, overrides)
    if config.model.start and config.model.like_start:
        sizes = open_weights(weights_folder(config.model.start)).sizes
        make_like(config, sizes, overrides)
    return config_lib.check(config)


def make_like(config: ConfigDict, sizes: Sizes, given: Container[str]) -> None:
    """Sets `config.model` to these sizes and this form, and shortens rows that are too long.

    Args:
      config: not locked.
      sizes: of the weights.
      given: dotted keys to leave as they are.
    """
    values = {key: value for key, value in asdict(sizes).items() if key in config.model and value}
    if sizes.embedding:  # the weights have an embedder
        form = sizes.form.keys()
        kept = [key for key in _OF_SCORES if form[key] == getattr(PAPER, key)]
        values |= {key: value for key, value in form.items() if key not in kept}
    for key, value in values.items():
        if f"model.{key}" not in given:
            config.model[key] = value
    prompt = 32 if config.model.query_prompt else 0  # room for its word pieces
    longest = min(sizes.form.longest or sizes.positions, sizes.positions)
    limits = {"query": longest - prompt, "passage": longest, "indexed": longest}
    limits["joint"] = sizes.positions
    for key, most in limits.items():
        if f"lengths.{key}" not in given:
            config.lengths[key] = min(config.lengths[key], most)
