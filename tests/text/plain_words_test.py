"""The cache of words gives the same pieces as the tokenizer for any text."""

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from realm_jax.corpus.readers import read
from realm_jax.corpus.tally import Skipped
from realm_jax.text import plain_words
from realm_jax.text.plain_words import is_plain
from realm_jax.text.sentences import sentence_bounds
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL, WordPieces

SHARED = Path(__file__).parents[3] / "shared/data"
PRINTABLE = [chr(c) for c in range(32, 127)]
PIECES = [*PRINTABLE[1:], "the", "##er", "##r", "wat", "##12", "12"]


@pytest.fixture
def words(tmp_path):
    lower = [p for p in PIECES if p == p.lower()]
    pieces = dict.fromkeys([*SPECIAL, *lower, *(f"##{c}" for c in "abcdefgh12")])
    write_vocabulary(tmp_path / "vocab.txt", [*pieces])
    return WordPieces.load(tmp_path / "vocab.txt")


def random_texts(seed, count=300):
    rng = random.Random(seed)
    alphabets = [PRINTABLE, "ab12 .", [chr(c) for c in range(160)], "the water 12\t\n\r.-é"]
    texts = [
        "".join(rng.choices(rng.choice(alphabets), k=rng.randint(0, 60))) for _ in range(count)
    ]
    return [*texts, "", " ", "a" * 100, "a" * 101, f"{'b' * 200}.c"]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for (ids, offsets), (right_ids, right_offsets) in zip(found, expected, strict=True):
        assert ids.tolist() == right_ids.tolist()
        assert offsets.tolist() == right_offsets.tolist()
        assert ids.dtype == offsets.dtype == np.int32


@pytest.mark.parametrize("most", [1 << 17, 10])  # the cache is never or always cleared
def test_random_text_has_the_tokenizers_pieces(words, monkeypatch, most):
    monkeypatch.setattr(plain_words, "_MOST_WORDS", most)
    for seed in range(4):
        texts = random_texts(seed)
        assert 50 < sum(map(is_plain, texts)) < len(texts) - 50
        assert_same(words.pieces(texts), words._tokenized(texts))
    assert words.pieces([]) == []


@pytest.mark.parametrize("text", ["a\x00b", "a\x7fb", "a\x0bb", "é", "a\u200bb", "a\u2028b"])
def test_text_that_the_tokenizer_normalises_is_passed_to_it(text):
    assert not is_plain(text)


def test_concurrent_calls_give_the_same_pieces(words, monkeypatch):
    monkeypatch.setattr(plain_words, "_MOST_WORDS", 50)
    texts = [random_texts(seed, 40) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for found, some in zip(pool.map(words.pieces, texts), texts, strict=True):
            assert_same(found, words._tokenized(some))


def test_the_table_can_be_pickled_to_another_process(words):
    copy = pickle.loads(pickle.dumps(words))
    assert_same(copy.pieces(["the water."]), words.pieces(["the water."]))


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the Wikipedia sample beside the checkout")
def test_real_text_has_the_tokenizers_pieces():
    words = WordPieces.load(SHARED / "bert-base-uncased-vocab.txt")
    archive = SHARED / "enwiki-2018-sample.wikiextractor.tar.xz"
    documents = islice(read("wikiextractor", str(archive), Skipped()), 30)
    texts = [d.body[a:b] for d in documents for a, b in sentence_bounds(d.body)]
    assert len(texts) > 3000
    assert_same(words.pieces(texts), words._tokenized(texts))
