"""A run folder, and index managers on it."""

import pytest
from searched_indexes import CORPUS
from support.tiny_corpus import tiny_config

from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_manager import IndexManager


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


@pytest.fixture
def make_manager(run):
    """Creates index managers, and closes them after the test."""
    made = []

    def make(mode="async", replay=(), stop=None, required=set, **changes):
        config = tiny_config(refresh__mode=mode, **changes)
        accepts = {CORPUS}.__contains__
        made.append(IndexManager(run, config, accepts, list(replay), required, stop))
        return made[-1]

    yield make
    for index in made:
        index.close()
