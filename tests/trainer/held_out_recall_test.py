"""Recall of an evaluation of stage `realm`."""

import numpy as np
from support.tiny_corpus import tiny_config

from realm_jax.corpus.spans import SpanStore
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.realm_stage import RealmStage


def test_rows_that_only_fill_up_the_last_batch_do_not_count(tiny, tmp_path):
    """Five sentences in a batch of eight; the first fills it up, and is found each time."""
    config = tiny_config(tiny.folder, evaluation__queries=5)
    ids = np.arange(len(tiny.store))
    spans = [[tuple(span) for span in tiny.spans.of(i).tolist()] for i in ids.tolist()]
    known = SpanStore.write(tmp_path / "known", tiny.store, spans, source=ids, evidence=ids)
    text = MaskedTextSource(tiny.store, known, config)
    index = IndexManager(RunDir(tmp_path), config, {""}.__contains__, [], set)
    stage = RealmStage(config, tiny.store, text, text, index)
    hits = np.full((8, 5), -1)
    hits[[0, 5], 4] = text.first(1).evidence[0]  # the sixth row repeats the first one
    assert stage._recall(1, np.arange(8), [hits]) == 1 / 5
