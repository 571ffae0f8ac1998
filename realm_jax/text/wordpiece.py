"""BERT word pieces with character offsets into the original text."""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, SupportsIndex

import numpy as np
from etils import epath
from jaxtyping import Bool, Int32
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from realm_jax.errors import InputError
from realm_jax.text.plain_words import Pieces, PlainWords, is_plain

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class WordPieces:
    """A word-piece vocabulary: lower-cased, accents stripped, as BERT-base uncased.

    Attributes:
      vocabulary: the pieces in id order.
      sha256: checksum of the vocabulary file.
      pad, unk, cls, sep, mask: ids of the special pieces; `pad` is 0.
    """

    def __init__(self, vocabulary: Sequence[str], sha256: str):
        self.vocabulary, self.sha256 = list(vocabulary), sha256
        ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self.pad, self.unk, self.cls, self.sep, self.mask = (ids[piece] for piece in SPECIAL)
        # The tokenizer does not know the special pieces, so "[MASK]" in a text is ordinary text.
        self._tokenizer = Tokenizer(
            models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
        )
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._decoder = decoders.WordPiece(cleanup=True)
        self._plain = PlainWords(self._tokenized)

    @classmethod
    def load(cls, path: epath.PathLike) -> "WordPieces":
        """Reads a vocabulary file: UTF-8, one piece per line, the line number is the id.

        Raises:
          InputError: the file does not exist or is not UTF-8, a special piece is missing, a piece
            is repeated, or [PAD] is not the first line.
        """
        path = epath.Path(path)
        if not path.is_file():
            raise InputError(
                "no vocabulary file", where=path, fix="use a BERT vocab.txt, one piece per line"
            )
        content = path.read_bytes()
        return cls(_lines(path, content), hashlib.sha256(content).hexdigest())

    def __reduce__(self) -> tuple[Any, ...]:
        return (WordPieces, (self.vocabulary, self.sha256))

    @property
    def special(self) -> tuple[int, ...]:
        """Ids of the special pieces; in published vocabularies they are not contiguous."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)

    @cached_property
    def continues(self) -> Bool[np.ndarray, "V"]:
        """True for pieces that continue a word (`##ing`)."""
        return np.array([piece.startswith("##") for piece in self.vocabulary])

    @cached_property
    def ordinary(self) -> Int32[np.ndarray, "_"]:
        """Ids of all pieces except the special ones."""
        return np.setdiff1d(np.arange(self.size, dtype=np.int32), self.special)

    @property
    def size(self) -> int:
        """Vocabulary size V."""
        return len(self.vocabulary)

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Ids and character offsets of the pieces of each text, without special pieces.

        Offsets are (start, stop) in characters of the original text. An offset includes the
        combining marks that follow its last character.
        """
        plain = [is_plain(text) for text in texts]
        quick = iter(self._plain.pieces([t for t, p in zip(texts, plain, strict=True) if p]))
        slow = iter(self._tokenized([t for t, p in zip(texts, plain, strict=True) if not p]))
        return [next(quick if p else slow) for p in plain]

    def _tokenized(self, texts: Sequence[str]) -> list[Pieces]:
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [
            (
                np.array(encoding.ids, np.int32),
                _with_marks(text, np.array(encoding.offsets, np.int32).reshape(-1, 2)),
            )
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def tokens(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """The pieces as written in the vocabulary, including `##`."""
        return [self.vocabulary[i] for i in ids]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """Lower-case text: continuation pieces are joined, spaces before punctuation are removed.

        A `##` at the start is dropped.
        """
        tokens = self.tokens(ids)
        tokens[:1] = [token.removeprefix("##") for token in tokens[:1]]
        return self._decoder.decode(tokens)


def _with_marks(text: str, offsets: Int32[np.ndarray, "n 2"]) -> Int32[np.ndarray, "n 2"]:
    """Extends each stop over the combining marks that follow; the tokenizer strips them.

    `"cafe" + U+0301` is one piece `cafe` with offsets (0, 4); the result is (0, 5).
    """
    if not text.isascii():
        for i, stop in enumerate(offsets[:, 1].tolist()):
            end = stop
            while end < len(text) and unicodedata.category(text[end]) == "Mn":
                end += 1
            offsets[i, 1] = end
    return offsets


def _lines(path: epath.Path, content: bytes) -> list[str]:
    try:
        # Not splitlines(): a piece may contain a character that Python treats as a line end.
        lines = content.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            "vocabulary is not UTF-8", where=path, found=f"{error.reason} at byte {error.start}"
        ) from error
    missing = [piece for piece in SPECIAL if piece not in lines]
    if missing:
        raise InputError(
            "vocabulary lacks special pieces",
            where=path,
            expected=" ".join(SPECIAL),
            found=f"no {' '.join(missing)}",
        )
    if lines[0] != "[PAD]":
        raise InputError(
            "[PAD] must be piece 0, the padding of every array",
            where=path,
            expected="[PAD] on line 1",
            found=f"[PAD] on line {lines.index('[PAD]') + 1}",
        )
    if len(set(lines)) < len(lines):
        twice = next(line for i, line in enumerate(lines) if lines.index(line) < i)
        raise InputError("vocabulary repeats a piece", where=path, found=repr(twice))
    return lines
