"""A small tagger from nothing on CoNLL-2003."""

from ml_collections import ConfigDict

from realm_jax.cli.tag_config import tagger_config


def get_config() -> ConfigDict:
    """What `realm tag train` does without a config."""
    return tagger_config()
