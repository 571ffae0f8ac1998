"""Renamed answers: passage and target change together, and nothing else does."""

import numpy as np

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.renaming import rename_answers
from realm_jax.data.rows import Rows, joint_rows
from realm_jax.testing.fakes import tiny_config
from realm_jax.text.wordpiece import SPECIAL, WordPieces


def rows_and_text(tiny):
    text = MaskedTextSource(tiny.store, tiny.spans, tiny_config(tiny.folder)).batch(0, 40)
    joint = joint_rows(text.queries, tiny.store, text.own[:, None], 64)
    return Rows(*(part[:, 0] for part in joint)), text


def test_passage_and_target_are_renamed_alike_and_the_sentence_is_not(tiny):
    joint, text = rows_and_text(tiny)
    renamed, new = rename_answers(
        joint, text, np.ones(40, bool), tiny.store.vocabulary, np.random.default_rng(0)
    )
    body = joint.segments == 1
    np.testing.assert_array_equal(renamed.ids[~body], joint.ids[~body])
    for row in range(len(joint.ids)):
        real = text.weights[row] > 0
        names = dict(zip(text.targets[row, real].tolist(), new.targets[row, real], strict=True))
        expected = [names.get(piece, piece) for piece in joint.ids[row, body[row]].tolist()]
        assert renamed.ids[row, body[row]].tolist() == expected
        assert not new.targets[row, ~real].any()
    assert (new.targets != text.targets)[text.weights > 0].mean() > 0.9


def test_the_batch_given_stays_as_it_was(tiny):
    joint, text = rows_and_text(tiny)
    ids, targets = joint.ids.copy(), text.targets.copy()
    rename_answers(joint, text, np.ones(40, bool), tiny.store.vocabulary, np.random.default_rng(0))
    np.testing.assert_array_equal(joint.ids, ids)
    np.testing.assert_array_equal(text.targets, targets)


def test_only_the_chosen_rows_are_renamed(tiny):
    joint, text = rows_and_text(tiny)
    chosen = np.arange(40) % 4 == 0
    _, new = rename_answers(joint, text, chosen, tiny.store.vocabulary, np.random.default_rng(1))
    changed = (new.targets != text.targets).any(1)
    assert changed[chosen].mean() > 0.9
    assert not changed[~chosen].any()


def test_special_pieces_are_never_drawn_wherever_the_vocabulary_has_them(tiny):
    joint, text = rows_and_text(tiny)
    scattered = ["[PAD]", *(f"[unused{i}]" for i in range(95)), *SPECIAL[1:]]
    words = WordPieces(scattered, "")
    drawn = set()
    for seed in range(20):
        _, new = rename_answers(joint, text, np.ones(40, bool), words, np.random.default_rng(seed))
        drawn |= set(new.targets[text.weights > 0].tolist())
    assert drawn == set(range(1, 96))
