"""A snapshot that cannot be written stops the run."""

import threading

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.errors import RealmError
from realm_jax.storage import failpoints
from realm_jax.trainer import run as trainer


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_full_disk_ends_the_wait_for_the_index_of_its_snapshot(tiny, tmp_path, mode):
    config = tiny_config(
        tiny.folder, stages__realm__steps=4, refresh__mode=mode, refresh__wait_seconds=60.0
    )
    full = failpoints.armed("snapshot.staged=full")
    with full, pytest.raises(RealmError, match=r"(?s)snapshot could not be published.*No space"):
        trainer.run(str(tmp_path), config, threading.Event())
