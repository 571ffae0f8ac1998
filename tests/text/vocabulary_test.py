"""Vocabulary training is deterministic, covers its text, and writes a file that loads."""

import json
import os
import subprocess
import sys

import pytest

from realm_jax.errors import InputError
from realm_jax.text.vocabulary import train_vocabulary, write_vocabulary
from realm_jax.text.wordpiece import SPECIAL, WordPieces

TEXTS = [
    f"The river {a}{b} joins the {b}{a}sea near Żywiec; {a}{a} rivers rejoin."
    for a in ("lo", "ma", "ki", "ve", "zu")
    for b in ("na", "ro", "ti", "sh", "pe")
]


def test_special_pieces_come_first_and_the_file_loads(tmp_path):
    pieces = train_vocabulary(TEXTS, 300)
    assert tuple(pieces[:5]) == SPECIAL
    assert len(pieces) == len(set(pieces)) <= 300
    write_vocabulary(tmp_path / "vocab.txt", pieces)
    words = WordPieces.load(tmp_path / "vocab.txt")
    assert words.vocabulary == pieces
    [(ids, _)] = words.pieces(["The river joins the sea"])
    assert words.unk not in ids
    assert len(ids) < 10  # the vocabulary has whole words, not only letters


def test_every_process_trains_the_same_vocabulary():
    program = (
        "import hashlib, json, sys\n"
        "from realm_jax.text.vocabulary import train_vocabulary\n"
        "print(hashlib.sha256(repr(train_vocabulary(json.load(sys.stdin), 200)).encode())"
        ".hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(TEXTS),
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(4)
    }
    assert len(outputs) == 1


def test_rare_characters_do_not_displace_words():
    rare = "".join(chr(0x4E00 + i) for i in range(500))
    pieces = train_vocabulary([*TEXTS * 3, rare], 200)
    assert len(pieces) <= 200
    assert "river" in pieces


@pytest.mark.parametrize(("texts", "size"), [([], 100), (["   "], 100), (["text"], 10)])
def test_text_that_cannot_be_trained_on_is_refused(texts, size):
    with pytest.raises(InputError, match="no vocabulary can be trained"):
        train_vocabulary(texts, size)
