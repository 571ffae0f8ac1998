"""Readers yield documents, count what they skip, and refuse malformed input with file and line."""

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
from pathlib import Path

import pytest

from realm_jax.corpus.readers import read
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

REAL = Path(__file__).parents[3] / "shared/data/enwiki-2018-sample.wikiextractor.tar.xz"


def article(title, body):
    return f'<doc id="1" url="https://x?curid=1" title="{title}">\n{body}\n</doc>\n'


def run(format, path):
    skipped = Skipped()
    documents = [(d.title, d.body) for d in read(format, str(path), skipped)]
    return documents, dict(skipped)


def test_wikiextractor_blocks_are_read(tmp_path):
    (tmp_path / "wiki_00").write_text(
        article("Art &amp; War", "Art &amp; War\n\nOne &lt;b&gt; two.\n\nThree.")
        + article('The "B"', "First.\nSecond.")
    )
    documents, skipped = run("wikiextractor", tmp_path)
    assert documents == [
        ("Art & War", "One <b> two.\n\nThree."),
        ('The "B"', "First.\nSecond."),
    ]
    assert skipped == {}


def test_wikiextractor_json_lines_are_read(tmp_path):
    lines = [
        {"id": "1", "url": "u", "title": "A", "text": "A\n\nBody."},
        {"id": "2", "url": "u", "title": "List of As", "text": "x"},
    ]
    (tmp_path / "wiki_00").write_text("\n".join(map(json.dumps, lines)))
    assert run("wikiextractor", tmp_path) == ([("A", "Body.")], {"list_page": 1})


def test_list_pages_and_empty_articles_are_counted_as_skipped(tmp_path):
    titles = ["List of x", "Index of x", "Outline of x", "X (disambiguation)", "Listing of x"]
    (tmp_path / "w").write_text(
        "".join(article(t, "Body.") for t in titles)
        + article("Empty", "Empty\n")
        + article(" ", "Body.")
    )
    documents, skipped = run("wikiextractor", tmp_path / "w")
    assert documents == [("Listing of x", "Body."), ("", "Body.")]
    assert skipped == {
        "list_page": 1,
        "index_page": 1,
        "outline_page": 1,
        "disambiguation_page": 1,
        "empty_body": 1,
    }


def test_only_the_article_that_is_not_utf8_is_skipped(tmp_path):
    bad = article("Bad", "caf\u00e9").encode("latin-1")
    (tmp_path / "w").write_bytes(bad + article("Good", "café").encode())
    assert run("wikiextractor", tmp_path / "w") == ([("Good", "café")], {"not_utf8": 1})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Just prose.\n", ":1"),
        ("\n</doc>\n" + article("A", "b"), "w:2"),
    ],
)
def test_files_not_from_wikiextractor_are_refused(tmp_path, content, message):
    (tmp_path / "w").write_text(content)
    with pytest.raises(InputError) as error:
        run("wikiextractor", tmp_path / "w")
    assert message in str(error.value)


def test_json_lines_are_read_and_invalid_ones_counted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        b'\xef\xbb\xbf{"title": "A", "text": "b"}\n\n{"title": "", "text": "b"}\n'
        b'{"title": "C", "text": " "}\n{"title": "\xe9", "text": "b"}\n'
        b'{"title": "D", "text": "\\ud800"}\n{"title": "List of x", "text": "y"}\n'
    )
    documents, skipped = run("jsonl", tmp_path / "a.jsonl")
    assert documents == [("A", "b"), ("", "b"), ("List of x", "y")]
    assert skipped == {"empty_body": 1, "not_utf8": 1, "not_unicode": 1}


@pytest.mark.parametrize("format", ["jsonl", "cc_news"])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"title": "A", ', "JSONDecodeError"),
        ('{"title": "A"}', "text but title"),
        ('["A", "b"]', "list"),
        ('{"title": 1, "text": "b"}', "'title' is a int"),
        ("3", "int"),
    ],
)
def test_malformed_json_line_is_refused_with_file_and_line(tmp_path, format, line, message):
    (tmp_path / "a.jsonl").write_text('{"title": "A", "text": "b"}\n' + line + "\n")
    with pytest.raises(InputError) as error:
        run(format, tmp_path / "a.jsonl")
    assert "a.jsonl:2" in str(error.value)
    assert message in str(error.value)


def test_text_files_of_a_folder_are_read_in_order_of_their_paths(tmp_path):
    (tmp_path / "b.txt").write_text("Body b.")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("Body a.")
    (tmp_path / "c.md").write_text("Body c.")
    (tmp_path / "notes.rst").write_text("No.")
    (tmp_path / ".hidden.txt").write_text("No.")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff")
    documents, skipped = run("text", tmp_path)
    assert documents == [("b", "Body b."), ("c", "Body c."), ("a", "Body a.")]
    assert skipped == {"not_utf8": 1, "other_extension": 1, "hidden": 1}
    assert run("text", tmp_path / "sub" / "*.txt")[0] == [("a", "Body a.")]
    assert run("text", f"{tmp_path}/**/a.txt")[0] == [("a", "Body a.")]


def test_compressed_files_and_archives_are_streamed(tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write('{"title": "A", "text": "b"}\n')
    assert run("jsonl", tmp_path / "a.jsonl.gz")[0] == [("A", "b")]
    archive = make_archive(tmp_path, {"../../escape.txt": b"Body.", "x/deep.txt": b"Deep."})
    documents, _ = run("text", archive)
    assert documents == [("escape", "Body."), ("deep", "Deep.")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl.gz", "a.tar.xz"]


def make_archive(folder, members):
    path = folder / "a.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("packed", [bz2, gzip, lzma])
@pytest.mark.parametrize("damage", ["cut short", "a changed byte"])
def test_damaged_compressed_file_is_refused(tmp_path, packed, damage):
    noise = random.Random(0)
    text = "".join(noise.choices("abcdefgh ", k=50_000))
    content = packed.compress(json.dumps({"title": "A", "text": text}).encode())
    changed = bytearray(content)
    changed[len(content) // 2] ^= 255
    suffix = {bz2: "bz2", gzip: "gz", lzma: "xz"}[packed]
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(content[: len(content) // 2] if damage == "cut short" else changed)
    with pytest.raises(InputError, match="damaged or cut short") as error:
        run("jsonl", path)
    assert path.name in str(error.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.98, 0.999])
def test_truncated_archive_is_refused(tmp_path, share):
    noise = random.Random(0)
    body = {
        f"w{i}": article("A", "".join(noise.choices("abcdefgh ", k=5000))).encode()
        for i in range(5)
    }
    archive = make_archive(tmp_path, body)
    content = archive.read_bytes()
    archive.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError) as error:
        run("wikiextractor", archive)
    assert "a.tar.xz" in str(error.value)


@pytest.mark.parametrize("input", ["none", "none/*.txt", "empty", "empty/*"])
def test_input_without_matching_files_is_refused(tmp_path, input):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no input file"):
        run("text", tmp_path / input)


def test_text_folder_without_text_files_is_refused(tmp_path):
    (tmp_path / "a.rst").write_text("x")
    with pytest.raises(InputError, match=r"\*\.txt or \*\.md"):
        run("text", tmp_path)


def test_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(InputError, match="wikiextractor or mediawiki or jsonl"):
        run("wiki", tmp_path)


@pytest.mark.skipif(not REAL.is_file(), reason="needs the Wikipedia sample beside the checkout")
def test_first_articles_of_the_wikipedia_sample_are_read():
    documents = read("wikiextractor", str(REAL), Skipped())
    first = next(documents)
    assert first.title == "Anarchism"
    assert first.body.startswith("Anarchism is a political philosophy")
    assert sum(1 for _, _ in zip(range(20), documents, strict=False)) == 20
