"""Each masking scheme against its definition, and masks on text with accents and CJK."""

import unicodedata

import numpy as np
import pytest

from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.writer import write_passages
from realm_jax.data import masking
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.errors import ConfigError
from realm_jax.testing.fakes import tiny_config
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

SPANS = np.array([[2, 5], [7, 8], [9, 12]], np.int32)


def many(scheme, size=20, rate=0.15, count=400):
    return [
        masking.positions(scheme, size, SPANS, rate, np.random.default_rng(seed))
        for seed in range(count)
    ]


def test_salient_span_hides_one_whole_span_each_as_often():
    drawn = [tuple(hidden.tolist()) for hidden in many("salient_span")]
    assert set(drawn) == {(2, 3, 4), (7,), (9, 10, 11)}
    assert all(100 < drawn.count(span) < 170 for span in set(drawn))


def test_random_token_hides_the_share_each_piece_alike():
    drawn = many("random_token")
    assert {len(hidden) for hidden in drawn} == {3}
    assert all((np.diff(hidden) > 0).all() for hidden in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    assert counts.min() > 30 and counts.max() < 95  # 60 expected


def test_random_span_hides_runs_until_the_share_is_reached():
    drawn = many("random_span", size=60, rate=0.25)
    assert {len(hidden) for hidden in drawn} == {15}
    assert all(hidden.min() >= 0 and hidden.max() < 60 for hidden in drawn)
    runs = [1 + (np.diff(hidden) > 1).sum() for hidden in drawn]
    alone = [1 + (np.diff(hidden) > 1).sum() for hidden in many("random_token", 60, 0.25)]
    assert np.mean(runs) < 0.5 * np.mean(alone)


@pytest.mark.parametrize("scheme", ["random_token", "random_span"])
def test_something_is_always_hidden(scheme):
    assert [hidden.tolist() for hidden in many(scheme, size=1, rate=0.01, count=3)] == [[0]] * 3


def test_unknown_scheme_is_named():
    with pytest.raises(ConfigError, match="salient"):
        masking.positions("salient", 3, SPANS, 0.1, np.random.default_rng(0))


SENTENCES = {
    "accented": ("In Ōsaka the Żywiec café opened.", "Żywiec café", "zywiec cafe"),
    "decomposed": (
        unicodedata.normalize("NFD", "In Ōsaka the Żywiec café opened."),
        unicodedata.normalize("NFD", "Żywiec café"),
        "zywiec cafe",
    ),
    "cjk": ("The word 日本語 is old.", "本語", "本 語"),
    "shrinking": ("İstanbul and ǅ are near.", "ǅ", "ǆ"),
}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    letters = [*"abcdefghijklmnopqrstuvwxyz日本語.ǆ"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    write_vocabulary(path, [*SPECIAL, *letters, *(f"##{c}" for c in letters)])
    return path


@pytest.mark.parametrize("kind", SENTENCES)
def test_the_masked_pieces_are_those_of_the_characters(kind, vocabulary, tmp_path):
    sentence, answer, decoded = SENTENCES[kind]
    write_passages(tmp_path / "store", [("Title", ["First one.", sentence])], vocabulary)
    store = PassageStore.open(tmp_path / "store")
    begin = store.body(0).index(answer)
    span = (begin, begin + len(answer))
    spans = SpanStore.write(None, store, [char_spans_to_pieces(store.body_offsets(0), [span])])
    config = tiny_config(lengths__masks=12, lengths__query=40, lengths__joint=48)
    batch = MaskedTextSource(store, spans, config).batch(0, 1)

    words = store.vocabulary
    count = int(batch.weights[0].sum())
    targets, places = batch.targets[0, :count], batch.positions[0, :count]
    assert words.decode(targets) == decoded
    masked = batch.queries.ids[0]
    np.testing.assert_array_equal(np.flatnonzero(masked == words.mask), places)
    restored = masked.copy()
    restored[places] = targets
    [(whole, offsets)] = words.pieces([sentence])
    assert restored[batch.queries.mask[0]].tolist() == [words.cls, *whole, words.sep]
    start = sentence.index(answer)
    inside = (offsets[:, 0] >= start) & (offsets[:, 1] <= start + len(answer))
    np.testing.assert_array_equal(np.flatnonzero(inside) + 1, places)
