"""Word pieces have BERT's ids and offsets into the original text; invalid files are refused."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest

from realm_jax.errors import InputError
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL, WordPieces

BERT = Path(__file__).parents[3] / "shared/data/bert-base-uncased-vocab.txt"
LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,'[]日本"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    write_vocabulary(path, [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), "cafe", "##ive"])
    return WordPieces.load(path)


def covered(words, text):
    [(ids, offsets)] = words.pieces([text])
    return [(t, text[a:b]) for t, (a, b) in zip(words.tokens(ids), offsets.tolist(), strict=True)]


def test_offsets_refer_to_the_original_text(words):
    assert covered(words, "Café, NAÏVE")[:2] == [("cafe", "Café"), (",", ",")]
    assert covered(words, "Café, NAÏVE")[-1] == ("##ive", "ÏVE")


def test_offsets_include_combining_marks(words):
    text = unicodedata.normalize("NFD", "Café naïve")
    assert len(text) == len("Café naïve") + 2
    pieces = covered(words, text)
    assert pieces[0] == ("cafe", text[:5])
    assert pieces[-1] == ("##ive", "i\u0308ve")


def test_each_cjk_character_is_a_separate_piece(words):
    assert covered(words, "a日本b") == [("a", "a"), ("日", "日"), ("本", "本"), ("b", "b")]


def test_a_special_token_in_a_text_is_treated_as_text(words):
    [(ids, _)] = words.pieces(["[MASK]"])
    assert words.mask not in ids
    assert words.tokens(ids)[0] == "["


def test_empty_arrays_have_the_documented_dtypes(words):
    for ids, offsets in words.pieces(["", "a b"]):
        assert ids.dtype == offsets.dtype == np.int32
        assert offsets.shape == (len(ids), 2)


def test_decode_drops_a_leading_continuation_mark(words):
    ids = [words.vocabulary.index(piece) for piece in ("##a", "##b", "c")]
    assert words.decode(ids) == "ab c"
    assert words.decode([]) == ""


def test_decode_joins_pieces_and_removes_spaces_before_punctuation(words):
    [(ids, _)] = words.pieces(["Café cab, dad."])
    assert words.decode(ids) == "cafe cab, dad."


def test_special_ids_and_size(words):
    assert (words.pad, words.unk, words.cls, words.sep, words.mask) == (0, 1, 2, 3, 4)
    assert words.size == 5 + 2 * len(LETTERS) + 2


def test_windows_line_endings_give_the_same_pieces(words, tmp_path):
    for end in ("", "\r\n"):
        (tmp_path / "v").write_bytes(("\r\n".join(words.vocabulary) + end).encode())
        assert WordPieces.load(tmp_path / "v").vocabulary == words.vocabulary


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", "[MASK]"),
        (b"a\n[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", "line 2"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", "'a'"),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\né\n".encode("latin-1"), "UTF-8"),
        (b"", "[PAD]"),
    ],
)
def test_an_invalid_vocabulary_is_refused_with_the_reason(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(InputError) as error:
        WordPieces.load(tmp_path / "vocab.txt")
    assert message in str(error.value)
    assert "vocab.txt" in str(error.value)


def test_a_missing_vocabulary_is_refused(tmp_path):
    with pytest.raises(InputError, match="no vocabulary file"):
        WordPieces.load(tmp_path / "none.txt")


@pytest.mark.skipif(not BERT.is_file(), reason="needs BERT's own vocabulary beside the checkout")
def test_the_vocabulary_of_bert_gives_the_published_ids():
    words = WordPieces.load(BERT)
    assert (words.size, words.pad, words.mask) == (30522, 0, 103)
    [(ids, _)] = words.pieces(["Hello, world! Unaffable."])
    assert ids.tolist() == [7592, 1010, 2088, 999, 14477, 20961, 3468, 1012]
