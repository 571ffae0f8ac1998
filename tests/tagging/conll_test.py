"""CoNLL files: documents, sentences, and errors for malformed files."""

import logging
import lzma
from collections import Counter
from pathlib import Path

import pytest

from realm_jax.errors import InputError
from realm_jax.tagging.conll import read_conll, read_predictions

SHARED = Path(__file__).parents[3] / "shared/data"
TYPES = "LOC MISC ORG PER"
GOOD = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
. . O O

Peter NNP B-NP B-PER
Hill NNP I-NP I-PER

-DOCSTART- -X- -X- O

Oslo NNP B-NP B-LOC
"""


def write(tmp_path, text, name="file.txt"):
    path = tmp_path / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(lzma.compress(content) if name.endswith(".xz") else content)
    return str(path)


@pytest.mark.parametrize("name", ["file.txt", "file.txt.xz"])
def test_documents_and_sentences_are_split(tmp_path, name):
    documents = read_conll(write(tmp_path, GOOD, name), TYPES)
    assert [[sentence.words for sentence in document] for document in documents] == [
        [("EU", "rejects", "."), ("Peter", "Hill")],
        [("Oslo",)],
    ]
    assert documents[0][1].tags == ("B-PER", "I-PER")
    assert documents[0][1].where.endswith(f"{name}:7")


def test_two_columns_tabs_windows_line_endings_and_a_byte_order_mark_are_read(tmp_path):
    text = "\ufeffEU\tB-ORG\r\nsaid\tO\r\n\r\nNo\u00a0break\tO\r\n"
    [[first, second]] = read_conll(write(tmp_path, text), TYPES)
    assert (first.words, second.words) == (("EU", "said"), ("No\u00a0break",))


def test_an_i_tag_without_a_b_tag_begins_an_entity_and_is_counted(tmp_path, caplog):
    text = "a O\nb I-LOC\nc I-PER\n\nd I-ORG\ne I-ORG\n"
    with caplog.at_level(logging.WARNING):
        [[first, second]] = read_conll(write(tmp_path, text), TYPES)
    assert first.tags == ("O", "B-LOC", "B-PER")
    assert second.tags == ("B-ORG", "I-ORG")
    assert "3 I tags" in caplog.text


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a NN O O\nb NN O\n", 2, ["4 columns", "3 columns", "file.txt:1"]),
        ("a NN O O\n\nb NN O O x\n", 3, ["5 columns"]),
        ("alone\n", 1, ["a word and its tag", "'alone'"]),
        ("a O\nb B-LOK\n", 2, ["'B-LOK'", "LOC, MISC, ORG, PER", "config.model.entities"]),
        ("a O\nb X-LOC\n", 2, ["'X-LOC'"]),
        ("a O\nb B\n", 2, ["'B'"]),
        ("a O\nb LOC\n", 2, ["'LOC'"]),
        ("a O\ncafé O\n".encode("latin-1"), 2, ["not UTF-8", "caf"]),
        (GOOD.encode("utf-16"), 1, ["not UTF-8"]),
    ],
)
def test_a_malformed_line_is_an_error_with_its_number(tmp_path, text, line, message):
    with pytest.raises(InputError) as error:
        read_conll(write(tmp_path, text), TYPES)
    for words in [f"file.txt:{line}\n", *message]:
        assert words in f"{error.value}\n"


@pytest.mark.parametrize("text", ["", "\n\n", "-DOCSTART- -X- -X- O\n\n"])
def test_a_file_without_sentences_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="no sentence"):
        read_conll(write(tmp_path, text), TYPES)


def test_a_truncated_archive_is_an_error_with_its_path(tmp_path):
    path = tmp_path / "cut.txt.xz"
    path.write_bytes(lzma.compress(GOOD.encode() * 2000)[:-40])
    with pytest.raises(InputError, match=r"damaged or cut short[\s\S]*cut\.txt\.xz"):
        read_conll(str(path), TYPES)
    with pytest.raises(InputError, match="no input file"):
        read_conll(str(tmp_path / "none.txt"), TYPES)


def test_predictions_are_the_last_two_columns(tmp_path):
    path = write(tmp_path, "a NN B-X O\nb NN O O\n\nc NN O I-Y\n")
    assert list(read_predictions(path)) == [(["B-X", "O"], ["O", "O"]), (["O"], ["I-Y"])]
    with pytest.raises(InputError, match=r"file\.txt:1"):
        list(read_predictions(write(tmp_path, "a O\n")))


@pytest.mark.parametrize(
    ("part", "documents", "sentences", "words", "phrases"),
    [
        pytest.param(
            "train",
            946,
            14_041,
            203_621,
            {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600},
            marks=pytest.mark.slow,
        ),
        ("valid", 216, 3_250, 51_362, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
    ],
)
def test_conll_2003_has_the_published_counts(part, documents, sentences, words, phrases):
    path = SHARED / f"conll2003.en.{part}.txt.xz"
    if not path.exists():
        pytest.skip(f"needs {path.name} beside the project")
    found = read_conll(str(path), TYPES)
    assert (len(found), sum(map(len, found))) == (documents, sentences)
    tags = [tag for document in found for sentence in document for tag in sentence.tags]
    assert len(tags) == words
    assert Counter(tag[2:] for tag in tags if tag[0] == "B") == phrases
