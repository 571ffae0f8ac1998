"""Runs whose index has four segments."""

from realm_jax.artifacts.published_index import open_index
from realm_jax.storage.layout import step_name
from support.tiny_corpus import tiny_config


def config_of(tiny, **changes):
    """Four segments of ten passages, in shards of four."""
    settings = {"model__layers": 1, "search__segment_passages": 12, "builder__shard": 4}
    return tiny_config(tiny.folder, **{**settings, **changes})


def shards_of(*segments):
    return [start for one in segments for start in (10 * one, 10 * one + 4, 10 * one + 8)]


def opened(run, step=2):
    return open_index(run.published_index / step_name(step))


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
