"""A tagger with random weights, published like a trained one."""

import jax
import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.models.modules import Modules
from realm_jax.storage.layout import RunDir
from realm_jax.tagging.published_tagger import publish_tagger


@pytest.fixture(scope="session")
def tagger_run(tmp_path_factory, tiny):
    """Workdir of a finished `realm tag train` run with random weights."""
    workdir = tmp_path_factory.mktemp("tagger") / "run"
    config = tiny_config(model__init_stddev=0.5, stages__tagger__row_length=24)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("tagger",))
    drawn = jax.jit(modules.init)(jax.random.key(3))["tagger"]
    vocabulary = (tiny.folder / "vocab.txt").read_bytes()
    publish_tagger(RunDir(workdir), 7, drawn, config_lib.to_json(config), vocabulary)
    return workdir
