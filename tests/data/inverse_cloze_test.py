"""Inverse cloze pairs: the sentence, and the passage with or without it."""

import numpy as np
from support.tiny_corpus import tiny_config

from realm_jax.data.inverse_cloze import InverseClozeSource
from realm_jax.data.rows import passage_rows


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
        if len(tiny.store.sentences(own)) == 2:
            assert pieces(batch.passages, row) == pieces(
                whole, row
            )  # an only sentence is not removed
        else:
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


def test_removing_a_truncated_sentence_changes_nothing(tiny):
    batch, whole = batch_and_whole(tiny, removal=1.0, passage=30)
    for row in range(len(batch.ids)):
        kept = pieces(batch.passages, row)
        assert kept[-1] == tiny.store.vocabulary.sep
        assert len(kept) <= len(pieces(whole, row))
        assert batch.passages.segments[row, len(kept) - 1] == 1


def test_special_tokens_are_never_masked(tiny):
    config = tiny_config(tiny.folder, stages__ict__mask_share=1.0)
    queries = InverseClozeSource(tiny.store, config).batch(0, 40).queries
    words = tiny.store.vocabulary
    assert set(np.unique(queries.ids)) == {words.pad, words.cls, words.sep, words.mask}
    shown = InverseClozeSource(tiny.store, tiny_config(tiny.folder)).batch(0, 40).queries
    np.testing.assert_array_equal(queries.ids == words.sep, shown.ids == words.sep)
    np.testing.assert_array_equal(queries.mask, shown.mask)
