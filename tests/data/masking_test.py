"""Each masking scheme follows its definition, also on text with accents and CJK characters."""

import unicodedata

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data import masking
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.errors import ConfigError
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL, WordPieces

SPAN = (2, 5)
COUNT = 2000


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A vocabulary of 26 letters, each also as a continuation piece."""
    path = tmp_path_factory.mktemp("letters") / "vocab.txt"
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    write_vocabulary(path, [*SPECIAL, *letters, *(f"##{c}" for c in letters)])
    return WordPieces.load(path)


def sentence(words, text):
    """Token ids of a text; `ab c` gives a ##b c."""
    found = [c if i == 0 else f"##{c}" for word in text.split() for i, c in enumerate(word)]
    return np.array([words.vocabulary.index(piece) for piece in found], np.int32)


def many(scheme, words, text, rate=0.0, count=COUNT):
    pieces = sentence(words, text)
    return [
        masking.mask_tokens(scheme, pieces, SPAN, rate, words, np.random.default_rng(seed))
        for seed in range(count)
    ]


def test_salient_span_masks_exactly_the_tokens_of_the_span(words):
    for masked in many("salient_span", words, "abcdef gh", count=50):
        assert masked.positions.tolist() == [2, 3, 4]
        assert masked.shown.tolist() == [words.mask] * 3


@pytest.mark.parametrize("scheme", ["random_token", "random_span"])
def test_random_schemes_mask_as_many_tokens_as_the_salient_span(words, scheme):
    for masked in many(scheme, words, "ab c def ghij k lm n opq"):
        assert len(masked.positions) == len(set(masked.positions.tolist())) == 3
        assert (np.diff(masked.positions) > 0).all()


@pytest.mark.parametrize("scheme", ["random_token", "random_span"])
@pytest.mark.parametrize(("rate", "size", "expected"), [(0.15, 20, 3), (0.01, 5, 1), (1.0, 7, 7)])
def test_a_rate_masks_that_share_and_at_least_one_token(words, scheme, rate, size, expected):
    for masked in many(scheme, words, "a " * size, rate, count=50):
        assert len(masked.positions) == expected


def test_random_token_masks_positions_uniformly(words):
    drawn = many("random_token", words, "ab c def ghij k lm n opq")
    counts = np.bincount(np.concatenate([masked.positions for masked in drawn]), minlength=17)
    expected = COUNT * 3 / 17
    assert abs(counts / expected - 1).max() < 0.2  # 4 standard deviations


def test_random_token_uses_the_80_10_10_rule(words):
    pieces = sentence(words, "ab c def ghij k lm n opq")
    kinds = {"mask": 0, "same": 0, "other": 0}
    for masked in many("random_token", words, "ab c def ghij k lm n opq"):
        for position, shown in zip(masked.positions, masked.shown, strict=True):
            same = shown == pieces[position]
            kinds["mask" if shown == words.mask else "same" if same else "other"] += 1
            assert shown == words.mask or shown not in words.special
    shares = {kind: count / (3 * COUNT) for kind, count in kinds.items()}
    assert shares["mask"] == pytest.approx(0.8, abs=0.02)
    assert shares["same"] == pytest.approx(0.1 * (1 + 1 / 52), abs=0.02)
    assert shares["other"] == pytest.approx(0.1 * (1 - 1 / 52), abs=0.02)


def test_random_span_masks_whole_words_with_one_draw_per_run(words):
    pieces = sentence(words, "abc " * 8)
    kinds = {"mask": 0, "same": 0, "other": 0}
    for masked in many("random_span", words, "abc " * 8):  # budget of three tokens: one word
        assert masked.positions[0] % 3 == 0 and np.ptp(masked.positions) == 2
        masks, kept = masked.shown == words.mask, masked.shown == pieces[masked.positions]
        assert masks.all() or not masks.any()
        kinds["mask" if masks.all() else "same" if kept.all() else "other"] += 1
    shares = {kind: count / COUNT for kind, count in kinds.items()}
    assert shares == pytest.approx({"mask": 0.8, "same": 0.1, "other": 0.1}, abs=0.03)


def test_random_span_lengths_are_geometric_up_to_ten_words():
    begins = np.ones(4000, bool)
    lengths = [
        len(masking.random_spans(begins, 10, np.random.default_rng(seed))[0])
        for seed in range(4000)
    ]
    assert max(lengths) == 10
    assert np.mean(lengths) == pytest.approx(3.8, abs=0.15)  # SpanBERT, section 3.1
    counts = np.bincount(lengths, minlength=11)
    assert counts[2] / counts[1] == pytest.approx(0.8, abs=0.1)
    assert counts[1] / 4000 == pytest.approx(0.2 / (1 - 0.8**10), abs=0.03)


def test_random_span_can_mask_every_token_and_start_at_any_word(words):
    begins = np.array([False, True, False, True])  # begins inside a word
    groups = masking.random_spans(begins, 4, np.random.default_rng(1))
    assert sorted(np.concatenate(groups).tolist()) == [0, 1, 2, 3]
    one = [masking.random_spans(begins, 1, np.random.default_rng(s))[0][0] for s in range(600)]
    counts = np.bincount(one, minlength=4)
    assert counts[2] == 0 and counts[[0, 1, 3]].min() > 150


def test_an_unknown_scheme_is_an_error(words):
    with pytest.raises(ConfigError, match="salient"):
        masking.mask_tokens(
            "salient", np.zeros(3, np.int32), (0, 1), 0.0, words, np.random.default_rng(0)
        )


def test_all_schemes_use_the_same_sentences_and_budgets(tiny):
    batches = {}
    for scheme in ("salient_span", "random_token", "random_span"):
        config = tiny_config(tiny.folder, masking__scheme=scheme)
        source = MaskedTextSource(tiny.store, tiny.spans, config)
        drawn = [source.batch(step, 16) for step in range(10)]
        batches[scheme] = drawn
        assert source.first(20).weights.sum() > 0
    salient = batches["salient_span"]
    for scheme in ("random_token", "random_span"):
        for ours, theirs in zip(batches[scheme], salient, strict=True):
            np.testing.assert_array_equal(ours.source, theirs.source)
            np.testing.assert_array_equal(ours.weights, theirs.weights)
        assert any(
            (a.positions != b.positions).any()
            for a, b in zip(batches[scheme], salient, strict=True)
        )


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
def test_masked_tokens_match_the_characters_of_the_span(kind, vocabulary, tmp_path):
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
    targets, positions = batch.targets[0, :count], batch.positions[0, :count]
    assert words.decode(targets) == decoded
    masked = batch.queries.ids[0]
    np.testing.assert_array_equal(np.flatnonzero(masked == words.mask), positions)
    restored = masked.copy()
    restored[positions] = targets
    [(whole, offsets)] = words.pieces([sentence])
    assert restored[batch.queries.mask[0]].tolist() == [words.cls, *whole, words.sep]
    start = sentence.index(answer)
    inside = (offsets[:, 0] >= start) & (offsets[:, 1] <= start + len(answer))
    np.testing.assert_array_equal(np.flatnonzero(inside) + 1, positions)
