"""Inverse cloze pairs: the sentence, and the passage with or without it."""

import logging

import numpy as np
import pytest
from support.tiny_corpus import tiny_config, vocabulary

from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.inverse_cloze import InverseClozeSource
from realm_jax.data.rows import passage_rows
from realm_jax.text.vocabulary import write_vocabulary


def batch_and_whole(tiny, removal, passage=64):
    config = tiny_config(tiny.folder, stages__ict__removal_share=removal, lengths__passage=passage)
    batch = InverseClozeSource(tiny.store, config).batch(1, 40)
    return batch, passage_rows(tiny.store, batch.ids, passage)


def pieces(rows, number):
    return rows.ids[number][rows.mask[number]].tolist()


def without(whole, part):
    """`whole` without its first occurrence of `part`."""
    at = next(i for i in range(len(whole)) if whole[i : i + len(part)] == part)
    return whole[:at] + whole[at + len(part) :]


def test_the_sentence_is_removed_and_the_rest_is_shifted(tiny):
    batch, whole = batch_and_whole(tiny, removal=1.0)
    for row, own in enumerate(batch.ids.tolist()):
        sentence = pieces(batch.queries, row)[1:-1]
        assert len(tiny.store.sentences(own)) > 2
        assert pieces(batch.passages, row) == without(pieces(whole, row), sentence)
        used = int(batch.passages.mask[row].sum())
        assert batch.passages.mask[row, :used].all()
        assert not batch.passages.ids[row, used:].any()
        assert not batch.passages.segments[row, used:].any()
        title = len(tiny.store.title_ids(own)) + 2
        assert batch.passages.segments[row, :used].tolist() == [0] * title + [1] * (used - title)


def test_every_sentence_of_a_passage_is_drawn(tiny):
    source = InverseClozeSource(tiny.store, tiny_config(tiny.folder))
    firsts = {
        tuple(pieces(batch.queries, row))
        for step in range(30)
        for batch in [source.batch(step, 40)]
        for row in np.flatnonzero(batch.ids == 2)
    }
    assert len(firsts) == len(tiny.store.sentences(2)) - 1 == 3


def test_without_removal_the_passage_is_unchanged(tiny):
    batch, whole = batch_and_whole(tiny, removal=0.0)
    np.testing.assert_array_equal(batch.passages.ids, whole.ids)


def test_removal_has_the_configured_probability(tiny):
    source = InverseClozeSource(
        tiny.store, tiny_config(tiny.folder, stages__ict__removal_share=0.9)
    )
    shorter = longer = 0
    for step in range(20):
        batch = source.batch(step, 40)
        whole = passage_rows(tiny.store, batch.ids, 40)
        several = np.array([len(tiny.store.sentences(own)) > 2 for own in batch.ids.tolist()])
        changed = (batch.passages.ids != whole.ids).any(1)
        shorter, longer = shorter + changed[several].sum(), longer + several.sum()
    assert 0.85 < shorter / longer < 0.95


@pytest.mark.parametrize("removal", [0.9, 0.5, 1.0])
def test_a_pair_of_a_single_sentence_is_dropped_with_the_probability_of_removal(tiny, removal):
    """As in the released code; a third of the passages have one sentence."""
    config = tiny_config(tiny.folder, stages__ict__removal_share=removal)
    source = InverseClozeSource(tiny.store, config)
    ids = np.concatenate([source.batch(step, 40).ids for step in range(60)])
    single = np.array([len(tiny.store.sentences(row)) == 2 for row in range(len(tiny.store))])
    kept = single.mean() * (1 - removal)
    expected = kept / (kept + 1 - single.mean())
    assert single[ids].mean() == pytest.approx(expected, abs=0.025)


def test_other_pairs_of_the_batch_are_those_without_any_drop(tiny):
    """Passage, sentence and [MASK] of a pair do not depend on the removal of another pair."""
    pairs = [
        InverseClozeSource(
            tiny.store,
            tiny_config(
                tiny.folder, stages__ict__removal_share=removal, stages__ict__mask_share=0.3
            ),
        ).batch(3, 40)
        for removal in (0.0, 0.9)
    ]
    same = pairs[0].ids == pairs[1].ids
    assert 20 < same.sum() < 40
    np.testing.assert_array_equal(pairs[0].queries.ids[same], pairs[1].queries.ids[same])


def test_a_corpus_of_single_sentences_keeps_them_with_one_warning(tmp_path, caplog):
    write_vocabulary(tmp_path / "vocab.txt", vocabulary())
    texts = [("Ora", [f"The capital of Ora is a{number}."]) for number in range(5)]
    write_passages(tmp_path / "corpus", texts, tmp_path / "vocab.txt")
    store = PassageStore.open(tmp_path / "corpus")
    config = tiny_config(tmp_path / "corpus", stages__ict__removal_share=1.0)
    source = InverseClozeSource(store, config)
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            batch = source.batch(step, 8)
            whole = passage_rows(store, batch.ids, config.lengths.passage)
            np.testing.assert_array_equal(batch.passages.ids, whole.ids)
            assert batch.passages.segments.any(1).all()  # no empty body
    [warning] = [record.getMessage() for record in caplog.records]
    assert "have one sentence each" in warning and str(tmp_path / "corpus") in warning


def test_removing_a_truncated_sentence_changes_nothing(tiny):
    batch, whole = batch_and_whole(tiny, removal=1.0, passage=30)
    for row in range(len(batch.ids)):
        kept = pieces(batch.passages, row)
        assert kept[-1] == tiny.store.vocabulary.sep
        assert len(kept) <= len(pieces(whole, row))
        assert batch.passages.segments[row, len(kept) - 1] == 1


def test_the_configured_share_of_query_tokens_is_masked(tiny):
    config = tiny_config(tiny.folder, stages__ict__mask_share=0.3)
    source, words = InverseClozeSource(tiny.store, config), tiny.store.vocabulary
    ids = np.concatenate([source.batch(step, 40).queries.ids for step in range(10)])
    share = (ids == words.mask).sum() / (~np.isin(ids, [words.pad, words.cls, words.sep])).sum()
    assert share == pytest.approx(0.3, abs=0.03)


def test_special_tokens_are_never_masked(tiny):
    config = tiny_config(tiny.folder, stages__ict__mask_share=1.0)
    queries = InverseClozeSource(tiny.store, config).batch(0, 40).queries
    words = tiny.store.vocabulary
    assert set(np.unique(queries.ids)) == {words.pad, words.cls, words.sep, words.mask}
    shown = InverseClozeSource(tiny.store, tiny_config(tiny.folder)).batch(0, 40).queries
    np.testing.assert_array_equal(queries.ids == words.sep, shown.ids == words.sep)
    np.testing.assert_array_equal(queries.mask, shown.mask)
