"""Masked sentences: queries, targets, held-out passages and errors."""

from itertools import pairwise

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.corpus.spans import SpanStore
from realm_jax.data.masked_text import MaskedTextSource, _held_out
from realm_jax.errors import InputError


def source(tiny, part="all", **changes):
    return MaskedTextSource(tiny.store, tiny.spans, tiny_config(tiny.folder, **changes), part)


def test_a_query_is_one_sentence_with_one_masked_span(tiny):
    batch = source(tiny).batch(0, 40)
    store, words = tiny.store, tiny.store.vocabulary
    assert sorted(batch.source) == list(range(len(store)))  # each once per epoch
    for row, source_passage in enumerate(batch.source.tolist()):
        count = int(batch.weights[row].sum())
        shown = batch.queries.ids[row].copy()
        shown[batch.positions[row, :count]] = batch.targets[row, :count]
        shown = shown[batch.queries.mask[row]][1:-1].tolist()
        bounds = store.sentences(source_passage)
        sentences = [store.body_ids(source_passage)[a:b].tolist() for a, b in pairwise(bounds)]
        assert shown in sentences
        start = int(bounds[sentences.index(shown)])
        masked = batch.positions[row, :count] - 1 + start
        spans = [tuple(span) for span in tiny.spans.of(source_passage).tolist()]
        assert (masked[0], masked[-1] + 1) in spans
        assert (batch.queries.ids[row] == words.mask).sum() == count


def test_every_span_of_a_passage_is_drawn(tiny):
    text = source(tiny)
    drawn = {
        (int(row), int(first))
        for step in range(60)
        for batch in [text.batch(step, 40)]
        for row, first in zip(batch.source, batch.targets[:, 0], strict=True)
    }
    spans_of = lambda row: {int(tiny.store.body_ids(row)[a]) for a, _ in tiny.spans.of(row)}  # noqa: E731
    assert all({piece for row, piece in drawn if row == r} == spans_of(r) for r in range(9))


def test_a_long_span_is_masked_completely_and_its_first_tokens_are_targets(tiny):
    batch = source(tiny, lengths__masks=2).batch(0, 40)
    hidden = (batch.queries.ids == tiny.store.vocabulary.mask).sum(1)
    scored = batch.weights.sum(1)
    np.testing.assert_array_equal(scored, np.minimum(hidden, 2))
    assert (hidden > 2).any()


def test_spans_beyond_the_query_length_are_never_drawn(tiny):
    text = source(tiny, lengths__query=16)
    for step in range(5):
        batch = text.batch(step, 16)
        hidden = batch.queries.ids == tiny.store.vocabulary.mask
        np.testing.assert_array_equal(hidden.sum(1), batch.weights.sum(1))
        assert (batch.positions < 15).all()


def test_every_fiftieth_passage_is_held_out():
    assert np.flatnonzero(_held_out(np.arange(1, 120))).tolist() == [49, 99]  # 50 and 100


def test_held_out_and_training_passages_are_disjoint(tiny):
    held_out, train = (set(source(tiny, part).rows.tolist()) for part in ("held_out", "train"))
    assert held_out and not held_out & train
    assert held_out | train == set(tiny.spans.rows.tolist())


def test_a_passage_whose_spans_do_not_fit_is_replaced_by_one_of_the_same_part(tiny, tmp_path):
    """Training never sees a held-out passage; the spans of odd passages are too far back."""
    store, ids = tiny.store, np.arange(len(tiny.store))
    last = [len(store.body_ids(row)) for row in ids.tolist()]
    spans = [[(end - 1, end)] if row % 2 else [(0, 1)] for row, end in enumerate(last)]
    written = SpanStore.write(tmp_path / "far", store, spans, source=ids)
    train = MaskedTextSource(store, written, tiny_config(tiny.folder, lengths__query=4), "train")
    drawn = {row for step in range(20) for row in train.batch(step, 39).source.tolist()}
    assert drawn == set(range(2, len(store), 2))  # passage 0 is held out


def test_rows_of_a_batch_with_the_same_passage_are_masked_independently(tiny):
    batch = source(tiny).batch(0, 80)  # each passage twice
    of = lambda row: np.flatnonzero(batch.source == row)  # noqa: E731
    same = [(batch.positions[a] == batch.positions[b]).all() for a, b in map(of, range(40))]
    assert 0.1 < np.mean(same) < 0.9


def spans_in(tiny, tmp_path, *passages):
    """The spans of these passages only."""
    spans = [
        tiny.spans.of(row).tolist() if row in passages else [] for row in range(len(tiny.store))
    ]
    return SpanStore.write(
        tmp_path / "some", tiny.store, [[tuple(x) for x in own] for own in spans]
    )


@pytest.mark.parametrize("passages", [(3, 7, 12), (0, 7), (0, 3)])
def test_a_corpus_with_few_spans_has_both_parts(tiny, tmp_path, passages):
    spans, config = spans_in(tiny, tmp_path, *passages), tiny_config(tiny.folder)
    held_out, train = (
        MaskedTextSource(tiny.store, spans, config, part).rows.tolist()
        for part in ("held_out", "train")
    )
    assert (held_out, train) == ([passages[0]], list(passages[1:]))


def test_if_all_spans_are_in_one_passage_the_error_says_so(tiny, tmp_path):
    spans, config = spans_in(tiny, tmp_path, 5), tiny_config(tiny.folder)
    with pytest.raises(InputError, match=r"only one passage[\s\S]*corpus\.held_out=FOLDER"):
        MaskedTextSource(tiny.store, spans, config, "train")
    assert len(MaskedTextSource(tiny.store, spans, config, "all")) == 1


def test_evaluation_masks_are_deterministic(tiny):
    one, two = (source(tiny).first(6) for _ in range(2))
    np.testing.assert_array_equal(one.queries.ids, two.queries.ids)
    assert len(one.queries.ids) == 6


def test_source_and_evidence_are_minus_one_if_unknown(tiny, tmp_path):
    spans = [
        [tuple(span) for span in tiny.spans.of(row).tolist()] for row in range(len(tiny.store))
    ]
    bare = SpanStore.write(tmp_path / "bare", tiny.store, spans)
    batch = MaskedTextSource(tiny.store, bare, tiny_config(tiny.folder)).batch(0, 4)
    assert batch.source.tolist() == batch.evidence.tolist() == [-1] * 4


def test_a_corpus_without_usable_spans_is_an_error_with_a_fix(tiny, tmp_path):
    none = SpanStore.write(tmp_path / "none", tiny.store, [[] for _ in range(len(tiny.store))])
    with pytest.raises(InputError, match="annotate"):
        MaskedTextSource(tiny.store, none, tiny_config(tiny.folder))
    far = [
        [(len(tiny.store.body_ids(i)) - 1, len(tiny.store.body_ids(i)))]
        for i in range(len(tiny.store))
    ]
    late = SpanStore.write(tmp_path / "late", tiny.store, far)
    config = tiny_config(tiny.folder, lengths__query=4)
    with pytest.raises(InputError, match=r"lengths\.query"):
        MaskedTextSource(tiny.store, late, config).batch(0, 1)


@pytest.mark.parametrize("scheme", ["random_span", "random_token"])
def test_random_schemes_need_no_spans(tiny, tmp_path, scheme):
    """Every sentence of every passage is drawn."""
    none = SpanStore.write(tmp_path / "none", tiny.store, [[] for _ in range(len(tiny.store))])
    changes = {"masking__scheme": scheme, "masking__rate": 0.2}
    source = MaskedTextSource(tiny.store, none, tiny_config(tiny.folder, **changes))
    assert len(source) == len(tiny.store)
    batches = [source.batch(step, 64) for step in range(8)]
    lengths = {int(n) for batch in batches for n in batch.queries.mask.sum(1)}
    sentences = {
        int(stop - start) + 2
        for row in range(len(tiny.store))
        for start, stop in pairwise(tiny.store.sentences(row))
    }
    most = source.lengths.query
    assert lengths == {min(length, most) for length in sentences}
    assert all((batch.weights.sum(1) >= 1).all() for batch in batches)
