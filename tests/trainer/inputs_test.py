"""Warnings about the corpora at the start of a run."""

import copy
import logging

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.trainer.inputs import warn_truncated_passages


@pytest.mark.parametrize("built_for", ["longer rows", "these rows", "unknown"])
@pytest.mark.parametrize("fits", [False, True])
def test_passages_longer_than_the_config_allows_are_warned_about(tiny, built_for, fits, caplog):
    longest = int(tiny.store.lengths().max())
    most = longest if fits else longest - 1
    store = copy.copy(tiny.store)
    pieces = {"longer rows": most + 1, "these rows": most, "unknown": 0}[built_for]
    store.manifest = {**store.manifest, "passage_pieces": pieces}
    config = tiny_config(tiny.folder, lengths__passage=most, model__positions=512)
    with caplog.at_level(logging.WARNING):
        warn_truncated_passages(store, config)
    if fits or built_for == "these rows":
        assert not caplog.records
    else:
        [warning] = caplog.messages
        assert f"--passage-pieces={most}" in warning and tiny.folder.name in warning
