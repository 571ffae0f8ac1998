"""Batches over a grown corpus hold added passages, and no removed one."""

import shutil

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data.inverse_cloze import InverseClozeSource
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.pretraining import PretrainingRows
from realm_jax.data.reader_warmup import ReaderWarmupSource
from realm_jax.data.rows import passage_rows

REMOVED = range(10, 30)


@pytest.fixture(scope="module")
def grown(tiny, tmp_path_factory):
    folder = shutil.copytree(tiny.folder, tmp_path_factory.mktemp("grown") / "corpus")
    new = [WrittenText(i, "Ora", "The capital of Ora is Ube in 1850.") for i in (None, 2)]
    write_passages_generation(folder, new, REMOVED)
    return PassageStore.open(folder)


def test_pairs_are_drawn_from_passages_that_exist(tiny, grown):
    source = InverseClozeSource(grown, tiny_config(tiny.folder))
    drawn = {i for step in range(12) for i in source.batch(step, 40).ids.tolist()}
    assert drawn <= set(grown.live_ids().tolist())
    assert len(grown) - 1 in drawn


def test_masked_sentences_are_of_passages_that_exist(tiny, grown):
    spans = SpanStore.open(None, grown)
    text = MaskedTextSource(grown, spans, tiny_config(tiny.folder))
    assert not set(text.rows.tolist()) & set(REMOVED)
    assert {2, len(grown) - 1} <= set(text.rows.tolist())
    assert sorted(text.batch(0, len(text)).source) == sorted(text.rows)
    PretrainingRows(tiny_config(tiny.folder), grown, 2).usual(text)


def test_a_neighbour_that_the_reader_is_shown_exists(tiny, grown):
    config = tiny_config(tiny.folder, stages__reader__neighbour_share=1.0)
    text = MaskedTextSource(grown, SpanStore.open(None, grown), config)
    joint = ReaderWarmupSource(config, grown, text).batch(0, 40).joint
    assert joint.segments.sum(1).min() > 1  # a body, not only the closing [SEP]


def test_rows_are_those_of_a_corpus_of_the_same_passages(tiny, grown):
    rows, before = (passage_rows(one, np.arange(40), 64) for one in (grown, tiny.store))
    unchanged = np.setdiff1d(np.arange(40), [2, *REMOVED])
    for ours, theirs in zip(rows, before, strict=True):
        assert np.array_equal(ours[unchanged], theirs[unchanged])
    words = grown.vocabulary
    [(title, _), (body, _)] = words.pieces(["Ora", "The capital of Ora is Ube in 1850."])
    assert rows.ids[2][rows.mask[2]].tolist()[1 : 1 + len(title)] == title.tolist()
    assert set(body.tolist()) <= set(rows.ids[2].tolist())
