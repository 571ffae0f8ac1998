"""What a run is told of its corpora before it begins."""

import logging

import pytest

from realm_jax.testing.fakes import tiny_config
from realm_jax.trainer.inputs import say_what_is_cut


@pytest.mark.parametrize("longest", [False, True])
def test_passages_longer_than_rows_are_told_of(tiny, longest, caplog):
    lengths = tiny.store.lengths()
    most = int(lengths.max() if longest else lengths.max() - 1)
    config = tiny_config(tiny.folder, lengths__passage=most, model__positions=512)
    with caplog.at_level(logging.WARNING):
        say_what_is_cut(tiny.store, config)
    if longest:
        assert not caplog.records
    else:
        [said] = caplog.messages
        assert f"--passage-pieces={most}" in said and tiny.folder.name in said
