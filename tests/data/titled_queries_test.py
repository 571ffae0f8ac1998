"""Queries of training after the title of their document."""

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.inverse_cloze import InverseClozeSource
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.retriever import NO_STEP
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.realm_stage import RealmStage


def masked(tiny, share, step=0, **rows):
    config = tiny_config(tiny.folder, stages__realm__title_share=share)
    return MaskedTextSource(tiny.store, tiny.spans, config).batch(step, 40, **rows)


def cloze(tiny, share, **rows):
    config = tiny_config(tiny.folder, stages__ict__title_share=share)
    return InverseClozeSource(tiny.store, config).batch(0, 40, **rows)


def pieces(rows, number):
    return rows.ids[number][rows.mask[number]].tolist()


def titles(tiny, numbers):
    return [tiny.store.title_ids(number).tolist() for number in numbers.tolist()]


def after_title(title, row, length):
    """`[CLS] title sentence [SEP]`, cut to `length`."""
    return [row[0], *(title + row[1:-1])[: length - 2], row[-1]]


def test_the_embedder_reads_the_title_and_the_reader_does_not(tiny):
    plain, batch = masked(tiny, 0.0), masked(tiny, 1.0)
    np.testing.assert_array_equal(batch.queries.ids, plain.queries.ids)
    np.testing.assert_array_equal(batch.positions, plain.positions)
    length = batch.embedded.ids.shape[1]
    for row, title in enumerate(titles(tiny, batch.source)):
        expected = after_title(title, pieces(plain.queries, row), length)
        assert pieces(batch.embedded, row) == expected


def test_a_training_step_searches_and_scores_with_the_titled_queries(tiny):
    config = tiny_config(tiny.folder, stages__realm__title_share=1.0)
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    index = IndexManager(RunDir(tiny.folder), config, {""}.__contains__, [], set)
    stage, drawn, searched = RealmStage(config, tiny.store, text, text, index), text.batch(0, 8), []
    vectors, ids = np.zeros((40, 8), np.float32), np.zeros((8, 4), np.int64)
    published = PublishedIndex(0, ExactSearcher(vectors), np.arange(40), vectors, {}, "{}", {})
    stage._retriever.candidates = lambda _, *given: searched.append(given[0]) or (ids, ids == 0)
    stage._candidates(published, tiny.store, drawn, NO_STEP)
    packed = stage.with_candidates(drawn, np.tile(np.arange(9), (8, 1)), 8)
    for row in range(8):
        expected = pieces(drawn.embedded, row)
        assert pieces(searched[0], row) == expected != pieces(drawn.queries, row)
        assert _row_at(packed.embedded, row)[: len(expected)] == expected
        read = pieces(drawn.queries, row)  # of the reader
        assert _row_at(packed.read, row * config.retrieval.candidates)[: len(read)] == read


def _row_at(packed, number):
    """The stream of the only group, from where a row begins."""
    stream = np.concatenate([block.ids.reshape(-1) for block in packed.blocks])
    return stream[packed.starts[0, number] :].tolist()


def test_without_titles_both_read_the_same(tiny):
    batch = masked(tiny, 0.0)
    for read, embedded in zip(batch.queries, batch.embedded, strict=True):
        np.testing.assert_array_equal(read, embedded)


def test_cloze_queries_follow_the_title_of_their_passage(tiny):
    plain, batch = cloze(tiny, 0.0), cloze(tiny, 1.0)
    np.testing.assert_array_equal(batch.passages.ids, plain.passages.ids)
    length = batch.queries.ids.shape[1]
    for row, title in enumerate(titles(tiny, batch.ids)):
        assert pieces(batch.queries, row) == after_title(title, pieces(plain.queries, row), length)


def test_a_share_of_the_queries_has_titles_and_other_queries_at_other_steps(tiny):
    chosen = [
        (batch.embedded.ids != batch.queries.ids).any(1)
        for step in range(10)
        for batch in [masked(tiny, 0.25, step)]
    ]
    assert np.mean(chosen) == pytest.approx(0.25, abs=0.08)  # 400 queries: 3.7 standard deviations
    assert len({one.tobytes() for one in chosen}) == 10


def test_a_host_draws_the_titles_of_its_own_rows(tiny):
    mine = np.array([3, 17, 39])
    rows = masked(tiny, 0.5, batch_rows=mine).embedded.ids
    np.testing.assert_array_equal(rows, masked(tiny, 0.5).embedded.ids[mine])
    rows = cloze(tiny, 0.5, batch_rows=mine).queries.ids
    np.testing.assert_array_equal(rows, cloze(tiny, 0.5).queries.ids[mine])


def test_held_out_queries_have_no_titles(tiny):
    config = tiny_config(tiny.folder, stages__realm__title_share=1.0)
    held_out = MaskedTextSource(tiny.store, tiny.spans, config, "held_out").first(5)
    np.testing.assert_array_equal(held_out.embedded.ids, held_out.queries.ids)
