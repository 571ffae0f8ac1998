"""What a run is told of its corpora before it begins."""

import copy
import logging

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.trainer.inputs import warn_truncated_passages


@pytest.mark.parametrize("cut_for", ["longer rows", "these rows", "unknown"])
@pytest.mark.parametrize("fits", [False, True])
def test_passages_cut_for_longer_rows_are_told_of(tiny, cut_for, fits, caplog):
    longest = int(tiny.store.lengths().max())
    most = longest if fits else longest - 1
    store = copy.copy(tiny.store)
    pieces = {"longer rows": most + 1, "these rows": most, "unknown": 0}[cut_for]
    store.manifest = {**store.manifest, "passage_pieces": pieces}
    config = tiny_config(tiny.folder, lengths__passage=most, model__positions=512)
    with caplog.at_level(logging.WARNING):
        warn_truncated_passages(store, config)
    if fits or cut_for == "these rows":
        assert not caplog.records
    else:
        [said] = caplog.messages
        assert f"--passage-pieces={most}" in said and tiny.folder.name in said
