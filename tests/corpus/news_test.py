"""Readers of CC-News and Reuters-21578, on synthetic and on real files."""

import json
from pathlib import Path

import pytest

from realm_jax.corpus.readers import read
from realm_jax.corpus.tally import Skipped
from realm_jax.errors import InputError

REAL = Path(__file__).parents[3] / "shared/data/reuters21578.tar.xz"
DOCTYPE = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
STORY = """<REUTERS TOPICS="YES" OLDID="1" NEWID="2">
<DATE>26-FEB-1987 15:01:01.79</DATE>
<UNKNOWN>
&#5;&#5;&#5;C T
</UNKNOWN>
<TEXT>&#2;
<TITLE>AT&amp;T &lt;T> BUYS
 RIVER</TITLE>
<DATELINE>    SALVADOR, Feb 26 - </DATELINE><BODY>Showers continued in
the &lt;Bahia> zone.
    Prices rose 1/2 pct to 1,750
dlrs per tonne.
    Shr 34 cts vs 1.19 dlrs
    Net 807,000
 Reuter
&#3;</BODY></TEXT>
</REUTERS>
"""
BODY = (
    "Showers continued in the <Bahia> zone.\n\nPrices rose 1/2 pct to 1,750 dlrs per tonne."
    "\n\nShr 34 cts vs 1.19 dlrs\n\nNet 807,000"
)


def run(format, path):
    skipped = Skipped()
    documents = [(d.title, d.body) for d in read(format, str(path), skipped)]
    return documents, dict(skipped)


def reuters(folder, content):
    (folder / "reut2-000.sgm").write_bytes((DOCTYPE + content).encode("latin-1"))
    return folder


def test_story_lines_are_joined_and_entities_decoded(tmp_path):
    assert run("reuters", reuters(tmp_path, STORY)) == ([("AT&T <T> BUYS RIVER", BODY)], {})


@pytest.mark.parametrize(
    "end",
    [
        "Reuter",
        "REUTER...",
        "Reuter^M",
        "REUTER...^M",
        "Reuters",
        "MORE",
        "--",
        "more\n --",
        "\n\n",
    ],
)
def test_sign_off_lines_are_removed(tmp_path, end):
    content = STORY.replace(" Reuter\n", f" {end}\n")
    assert run("reuters", reuters(tmp_path, content))[0][0][1] == BODY


def test_sentence_that_ends_like_a_sign_off_is_kept(tmp_path):
    content = STORY.replace("Net 807,000\n Reuter\n", "There is no more")
    assert run("reuters", reuters(tmp_path, content))[0][0][1].endswith("\n\nThere is no more")


def test_control_characters_are_removed(tmp_path):
    content = STORY.replace("zone.", "zo&#127;ne.\xfc&#5;&#30;")
    assert run("reuters", reuters(tmp_path, content))[0] == [("AT&T <T> BUYS RIVER", BODY)]


def test_stories_without_body_and_other_files_are_skipped(tmp_path):
    headline = STORY[: STORY.index("<BODY>")] + "</TEXT>\n</REUTERS>\n"
    table = '<REUTERS>\n<TEXT TYPE="UNPROC">&#2;\nM-1 736.7 up\n</TEXT>\n</REUTERS>\n'
    (tmp_path / "README.txt").write_text("Notes.")
    documents, skipped = run("reuters", reuters(tmp_path, headline + table + STORY))
    assert [title for title, _ in documents] == ["AT&T <T> BUYS RIVER"]
    assert skipped == {"headline_only": 1, "unprocessed": 1, "other_extension": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Prose.\n", "not Reuters-21578"),
        (STORY + STORY[:300], "reut2-000.sgm:19"),
        ("<p>", "sgm:2"),
    ],
)
def test_other_files_are_refused_with_the_line_in_the_error(tmp_path, content, message):
    with pytest.raises(InputError) as error:
        run("reuters", reuters(tmp_path, content))
    assert message in str(error.value)


@pytest.mark.skipif(not REAL.is_file(), reason="needs Reuters-21578 beside the checkout")
def test_reuters_21578_is_read_completely():
    skipped = Skipped()
    documents = list(read("reuters", str(REAL), skipped))
    assert len(documents) == 19_043
    # the archive has eight files that are not SGML
    assert skipped == {"headline_only": 1798, "unprocessed": 737, "other_extension": 8}
    assert documents[0].title == "BAHIA COCOA REVIEW"
    assert documents[0].body.startswith("Showers continued throughout the week in the Bahia cocoa")
    assert documents[0].body.endswith("carnival which ends midday on February 27.")
    text = "".join(d.title + d.body.replace("\n\n", "") for d in documents)
    assert text.isascii()
    assert text.isprintable()
    assert "&lt;" not in text


def test_cc_news_is_read_in_both_public_formats(tmp_path):
    lines = [
        {
            "title": "Flood in Rome",
            "text": "Rome is flooded.\nThe Tiber rose.",
            "domain": "a.example",
            "date": "2018-01-02 00:00:00",
            "description": None,
            "url": "https://a.example/1",
            "image_url": None,
        },
        {"maintext": "Oslo votes.", "title": "Vote", "date_publish": "2018-01-02", "text": None},
        {"title": None, "text": "No title."},
        {"title": "No text", "maintext": None},
        {"title": "List of x", "text": "News keeps its lists."},
    ]
    content = "\n".join(json.dumps(line) for line in lines).encode() + b"\n"
    content += '{"text": "", "title": "Ø"}\n'.encode() + b'{"title": "\xff"}\n'
    (tmp_path / "news.jsonl").write_bytes(content)
    documents, skipped = run("cc_news", tmp_path / "news.jsonl")
    assert documents == [
        ("Flood in Rome", "Rome is flooded.\nThe Tiber rose."),
        ("Vote", "Oslo votes."),
        ("", "No title."),
        ("List of x", "News keeps its lists."),
    ]
    assert skipped == {"empty_body": 2, "not_utf8": 1}
