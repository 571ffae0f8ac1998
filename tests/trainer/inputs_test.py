"""Warnings about the corpora at the start of a run."""

import logging

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.trainer.inputs import warn_truncated_passages


def test_the_index_may_have_longer_rows_than_training(tiny, caplog):
    longest = int(tiny.store.lengths().max())
    rows = {"lengths__passage": longest - 1, "lengths__indexed": longest}
    config = tiny_config(tiny.folder, model__positions=512, **rows)
    with caplog.at_level(logging.INFO):
        warn_truncated_passages(tiny.store, config)
    many = int((tiny.store.lengths() == longest).sum())
    [told] = caplog.records
    assert told.levelno == logging.INFO
    assert f"the first {longest - 1} word pieces of {many} passages" in told.message


@pytest.mark.parametrize("fits", [False, True])
def test_passages_longer_than_the_config_allows_are_warned_about(tiny, fits, caplog):
    store = tiny.store
    longest = int(store.lengths().max())
    most = longest if fits else longest - 1
    config = tiny_config(tiny.folder, lengths__passage=most, model__positions=512)
    with caplog.at_level(logging.WARNING):
        warn_truncated_passages(store, config)
    if fits:
        assert not caplog.records
    else:
        [warning] = caplog.messages
        many = int((store.lengths() == longest).sum())
        assert f"{many} of {len(store)} passages ({many} word pieces)" in warning
        assert f"--passage-pieces={most}" in warning and tiny.folder.name in warning
