"""Reader warm-up batches: paired passages, permuted names and gold spans."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.reader_warmup import ReaderWarmupSource, matching_spans
from realm_jax.data.rows import Rows
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

B = 40


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A corpus of 2,500 rare one-token names: "kaba lies in muto ."."""
    syllables = [c + v for c in "bdfgklmnrt" for v in "aeiou"]
    names = [one + two for one in syllables for two in syllables]
    folder = tmp_path_factory.mktemp("names")
    write_vocabulary(folder / "vocab.txt", [*SPECIAL, "lies", "in", ".", *names])
    pairs = zip(names, np.random.default_rng(0).permutation(names), strict=True)
    passages = [("", [f"{one} lies in {two}."]) for one, two in pairs]
    write_passages(folder / "z", passages, folder / "vocab.txt")
    store = PassageStore.open(folder / "z")
    spans = [[(3, 4)]] * len(store)
    source = np.arange(len(store), dtype=np.int64)
    SpanStore.write(None, store, spans, source=source, evidence=None, knowledge=store)
    return SimpleNamespace(folder=folder / "z", store=store, spans=SpanStore.open(None, store))


def source_of(tiny, more=None, **settings):
    settings = {f"stages__reader__{key}": value for key, value in settings.items()}
    config = tiny_config(tiny.folder, **settings, **(more or {}))
    text = MaskedTextSource(tiny.store, tiny.spans, config)
    return ReaderWarmupSource(config, tiny.store, text), text


def body(joint, row):
    ids = joint.ids[row][joint.mask[row] & (joint.segments[row] == 1)]
    return ids[:-1]  # [SEP]


def gold_pieces(reading, row):
    """Token ids of each gold span."""
    return [
        reading.joint.ids[row, start : start + width + 1]
        for start, width in np.argwhere(reading.gold[row])
    ]


def test_each_sentence_is_paired_with_its_passage_and_gold_is_the_masked_span(tiny):
    source, plain = source_of(tiny)
    reading, text = source.batch(3, B), plain.batch(3, B)
    fits = 0
    for row in range(B):
        passage = tiny.store.body_ids(int(text.source[row]))
        np.testing.assert_array_equal(
            body(reading.joint, row), passage[: len(body(reading.joint, row))]
        )
        real = text.weights[row] > 0
        found = gold_pieces(reading, row)
        fits += bool(found)
        for pieces in found:
            np.testing.assert_array_equal(pieces, text.targets[row, real])
    assert fits > B / 2
    np.testing.assert_array_equal(reading.text.targets, text.targets)
    np.testing.assert_array_equal(reading.text.weights, text.weights)


def test_the_passage_that_is_known_to_state_a_sentence_comes_before_its_source(tiny, tmp_path):
    """Except in the copying phase."""
    ids = np.arange(len(tiny.store))
    spans = [[tuple(span) for span in tiny.spans.of(i).tolist()] for i in ids.tolist()]
    stated = np.roll(ids, 7)
    known = SpanStore.write(tmp_path / "s", tiny.store, spans, source=ids, evidence=stated)
    steps = {"stages__reader__steps": 2, "stages__reader__copying_share": 0.5}
    config = tiny_config(tiny.folder, **steps)
    text = MaskedTextSource(tiny.store, known, config)
    source = ReaderWarmupSource(config, tiny.store, text)
    for step, shown in ((0, ids), (1, stated)):
        joint, drawn = source.batch(step, B).joint, text.batch(step, B).source
        for row, passage in enumerate(shown[drawn].tolist()):
            read = body(joint, row)
            np.testing.assert_array_equal(read, tiny.store.body_ids(passage)[: len(read)])


def test_permuted_rows_stay_consistent(names):
    (source, plain), (usual, _) = source_of(names, permuted_share=1.0), source_of(names)
    reading, same, text = source.batch(1, B), usual.batch(1, B), plain.batch(1, B)
    changed = reading.joint.ids != same.joint.ids
    renamed = {}
    for old, new in zip(same.joint.ids[changed], reading.joint.ids[changed], strict=True):
        assert renamed.setdefault(int(old), int(new)) == int(new)
    # Three tokens change: the subject in the sentence, and subject and answer in the passage.
    assert changed.sum(-1).tolist() == [3] * B
    for old, new in zip(text.targets[:, 0], reading.text.targets[:, 0], strict=True):
        assert renamed[int(old)] == int(new)
    np.testing.assert_array_equal(reading.gold, same.gold)
    assert same.gold.any((1, 2)).all()


def test_the_configured_share_of_rows_is_permuted(names):
    (source, _), (usual, _) = source_of(names, permuted_share=0.5), source_of(names)
    changed = (source.batch(1, 400).joint.ids != usual.batch(1, 400).joint.ids).any(-1)
    assert 0.4 < changed.mean() < 0.6


def test_a_hidden_mask_token_is_not_attended_to_and_trains_only_the_span(tiny):
    (source, _), (usual, _) = source_of(tiny, hidden_mask_share=1.0), source_of(tiny)
    reading, same = source.batch(2, B), usual.batch(2, B)
    blank = reading.joint.ids == tiny.store.vocabulary.mask
    np.testing.assert_array_equal(reading.joint.mask, same.joint.mask & ~blank)
    assert blank.any() and not reading.text.weights.any()
    np.testing.assert_array_equal(reading.gold, same.gold)
    np.testing.assert_array_equal(reading.one_span, same.one_span)


def test_a_span_with_more_pieces_than_targets_is_not_gold(tiny):
    """Its first pieces alone are not the masked span."""
    source, _ = source_of(tiny, {"lengths__masks": 3})
    reading = source.batch(2, B)
    is_long = (reading.text.queries.ids == tiny.store.vocabulary.mask).sum(1) > 3
    assert is_long.any() and not is_long.all()
    assert not reading.one_span[is_long].any() and not reading.gold[is_long].any()
    assert reading.one_span[~is_long].all() and reading.gold[~is_long].any()


def test_a_negative_is_at_most_two_passages_away(tiny):
    (source, plain), count = source_of(tiny, neighbour_share=1.0), len(tiny.store)
    reading, text = source.batch(0, B), plain.batch(0, B)
    for row in range(B):
        near = (int(text.source[row]) + np.array([-2, -1, 1, 2])) % count
        read = body(reading.joint, row)
        assert any(np.array_equal(tiny.store.body_ids(p)[: len(read)], read) for p in near.tolist())


def test_a_null_share_changes_no_other_rows(tiny):
    (source, _), (usual, _) = source_of(tiny, neighbour_share=0.3, null_share=0.4), source_of(tiny)
    neighbours, _ = source_of(tiny, neighbour_share=0.3)
    reading, without, positives = (s.batch(0, 400) for s in (source, neighbours, usual))
    null = np.array([not len(body(reading.joint, row)) for row in range(400)])
    assert 0.3 < null.mean() < 0.5
    assert (reading.text.weights[null] == positives.text.weights[null]).all()
    assert not reading.gold[null].any() and positives.gold[null].any()
    np.testing.assert_array_equal(reading.joint.ids[~null], without.joint.ids[~null])


def test_the_copying_phase_changes_no_later_steps(tiny):
    steps = {"stages__reader__steps": 10}
    wrong = {"neighbour_share": 0.5, "null_share": 0.5, "hidden_mask_share": 0.5}
    source, _ = source_of(tiny, copying_share=0.4, more=steps, **wrong)
    usual, plain = source_of(tiny, more=steps, **wrong)
    first = source.batch(3, B)
    passages = plain.batch(3, B).source
    for row in range(B):
        passage = tiny.store.body_ids(int(passages[row]))
        read = body(first.joint, row)
        np.testing.assert_array_equal(read, passage[: len(read)])
        real = first.text.weights[row] > 0
        assert real.any() and np.isin(first.text.targets[row, real], passage).all()
    assert not first.one_span.all()  # some masked tokens are not contiguous
    for part, same in zip(source.batch(4, B), usual.batch(4, B), strict=True):
        jax.tree.map(np.testing.assert_array_equal, part, same)


def test_scattered_masks_are_not_one_span(tiny):
    source, plain = source_of(tiny, more={"masking__scheme": "random_token", "masking__rate": 0.3})
    reading, text = source.batch(0, B), plain.batch(0, B)
    scattered = [
        row
        for row in range(B)
        if (text.weights[row] > 0).sum() > 1
        and np.ptp(text.positions[row][text.weights[row] > 0]) >= (text.weights[row] > 0).sum()
    ]
    assert scattered
    assert not reading.one_span[scattered].any()
    assert not reading.gold[scattered].any()


def rows(ids, body):
    """One joint row [1, 1, J]; the tokens from `body` on are the passage body and [SEP]."""
    array = np.array([[ids]], np.int32)
    segments = (np.arange(len(ids)) >= body).astype(np.int32)[None, None]
    return Rows(array, np.ones(array.shape, bool), segments)


def found(gold):
    return [(int(i), int(i + w)) for _, _, i, w in np.argwhere(gold)]


def test_every_occurrence_of_every_answer_in_the_body_is_gold():
    joint = rows([2, 7, 8, 3, 7, 8, 9, 7, 8, 3], body=4)
    answers = [[np.array([7, 8]), np.array([9])]]
    assert found(matching_spans(joint, answers, 3)) == [(4, 5), (6, 6), (7, 8)]


def test_answers_that_are_too_wide_empty_or_absent_are_not_gold():
    joint = rows([2, 3, 5, 6, 7, 3], body=2)
    answers = [[np.array([5, 6, 7]), np.array([], np.int32), np.array([9])]]
    assert not matching_spans(joint, answers, 2).any()
    assert found(matching_spans(joint, answers, 3)) == [(2, 4)]


def test_an_answer_across_the_body_boundary_is_not_gold():
    joint = rows([2, 5, 3, 6, 3], body=3)
    assert not matching_spans(joint, [[np.array([3, 6])]], 3).any()


def test_padding_is_not_part_of_the_body():
    joint = rows([2, 3, 5, 3, 0, 0], body=2)
    joint = joint._replace(mask=np.array([[[True] * 4 + [False] * 2]]))
    assert not matching_spans(joint, [[np.array([0])]], 3).any()
