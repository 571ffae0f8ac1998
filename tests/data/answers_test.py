"""Answer spans in passages: every span found is correct, and no correct span is missed."""

import json
import lzma
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from realm_jax.data.answers import accepted, contains_answer
from realm_jax.data.question_files import Question, read_questions
from realm_jax.metrics import is_right
from realm_jax.text import expression
from realm_jax.text.answer_form import normalise_answer
from realm_jax.text.wordpiece import SPECIAL, WordPieces

SHARED = Path(__file__).parents[3] / "shared/data"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data next to the checkout")

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,'\"()$-––"
# NFD divides one character into several, each of which is a piece here.
GREEK = "Η ΟΔΟΣ, η οδός"  # the last letter of its words differs in lower case: ς, not σ
HANGUL, BENGALI = "그는 대한민국 에서 태어났다. 서울, (서울)", "তিনি কোলকাতা শহরে।"
CHARACTERS += unicodedata.normalize("NFD", HANGUL + BENGALI + GREEK).lower() + "σ"
PIECES = [*SPECIAL, *dict.fromkeys(CHARACTERS), *(f"##{c}" for c in dict.fromkeys(CHARACTERS))]
WORDS = ["beatles", "the", "mari", "wood", "##land", "usa", "paris", "woodland"]


@pytest.fixture(scope="module")
def words():
    """A vocabulary with a few whole words; all other words are split into characters."""
    return WordPieces([*PIECES, *WORDS], "")


def texts(words, body, answers, widest=99, **kind):
    """The texts of the spans that are found."""
    finder = accepted(Question("?", tuple(answers), **kind))
    offsets = words.pieces([body])[0][1]
    spans = finder.spans(body, offsets, widest)
    assert finder.may_be_in(body) or not spans
    assert all(0 <= first <= last < first + widest for first, last in spans)
    return [body[offsets[first, 0] : offsets[last, 1]] for first, last in spans]


@pytest.mark.parametrize(
    ("body", "answer", "found"),
    [
        ("The Beatles, the beatles.", "Beatles", ["Beatles", "beatles"]),
        ("The Beatles, a Beatles.", "the beatles", ["The Beatles", "Beatles"]),
        ("In the U.S.A. and USA.", "U.S.A.", ["U.S.A.", "USA"]),
        ("In the U.S.A. and USA.", "USA", ["U.S.A", "USA"]),
        ("It cost $500 then, or 500.", "$500", ["$500", "500"]),
        ("On July 5, 2018.", "July 5 , 2018", ["July 5, 2018"]),
        ("Paris-based, in (Paris) 1990–1995", "Paris", ["Paris", "Paris"]),
        ("from 1990–1995", "1995", ["1995"]),
        ("Lord of the Rings", "lord of rings", ["Lord of the Rings"]),
        ("Lord of Rings", "the Lord of the Rings", ["Lord of Rings"]),
        ("Zu\u0308rich and Zürich and Zurich", "Zürich", ["Zu\u0308rich", "Zürich"]),
        ("Zürich and Zurich", "Zurich", ["Zurich"]),
        ("Santa María. María", "maria", []),
        ("Santa María. María", "MARÍA", ["María", "María"]),
        ("El AÑO. Un año", "año", ["AÑO", "año"]),  # the official rule removes "an" here
        ("woodland wood", "wood", ["wood"]),  # "woodland" is one token
        ("東京 is 東京都", "東京", ["東京", "東京"]),
        (HANGUL, "대한민국", ["대한민국"]),
        (HANGUL, "국", ["국"]),
        (HANGUL, "서울", ["서울", "서울"]),
        (HANGUL, "(서울)", ["서울", "(서울)"]),
        (BENGALI, "কোলকাতা", ["কোলকাতা"]),
        (GREEK, "ΟΔΟΣ", ["ΟΔΟΣ"]),
        (GREEK, "οδός", ["οδός"]),
        ("theatre the end", "the", []),
        ("... --- ...", "...", []),
        ("x y", "xy", []),
        ("xy", "x y", []),
        ("", "x", []),
    ],
)
def test_text_answers_follow_the_official_normalisation(words, body, answer, found):
    assert texts(words, body, [answer]) == found


@pytest.mark.parametrize("is_expression", [False, True])
def test_a_span_starts_at_the_first_piece_of_a_character(words, is_expression):
    pieces, offsets = words.pieces(["서울"])[0]
    assert len(pieces) == 5
    spans = accepted(Question("?", ("서울",), expression=is_expression)).spans("서울", offsets, 5)
    [(first, last)] = spans
    assert first == 0 and tuple(offsets[last]) == (1, 2)


def test_every_answer_is_found_and_each_span_is_listed_once(words):
    answers = ["The Beatles", "beatles", "Paris", "?"]
    assert texts(words, "beatles in paris", answers) == ["beatles", "paris"]


def test_a_span_too_wide_with_punctuation_is_found_without_it(words):
    assert texts(words, "Say (paris)!", ["(Paris)"], widest=3) == ["(paris)"]
    assert texts(words, "Say (paris)!", ["(Paris)"], widest=2) == ["paris"]
    assert texts(words, "In 1990", ["1990"], widest=3) == []


@pytest.mark.parametrize(
    ("body", "pattern", "found"),
    [
        ("Paris, PARIS", "par(is)?", ["Paris", "PARIS"]),
        ("usa woodland wood", "wood", ["woodland", "wood"]),  # a span ends at a token end
        ("usawood", "wood", ["wood"]),
        ("in 1984 or 2084", r"19\d\d", ["1984"]),
        ("paris the paris", ".*paris", ["paris the paris", "the paris", "paris"]),
        ("paris", "x*", []),
        ("one\nparis", "^paris$", ["paris"]),
    ],
)
def test_expressions_match_at_the_start_of_a_span(words, body, pattern, found):
    assert texts(words, body, [pattern], expression=True) == found


def test_an_unbounded_expression_is_cut_at_the_widest_span(words):
    body = "paris the usa the paris the wood the usa"
    assert texts(words, body, ["par.*usa"], 3, expression=True) == ["paris the usa"]


def test_an_expression_that_takes_too_long_finds_nothing(words, monkeypatch):
    monkeypatch.setattr(expression, "MOST_SECONDS", 0.05)
    finder = accepted(Question("?", (r"(a|aa)+$",), expression=True))
    body = "a" * 90 + "b"
    offsets = words.pieces([body])[0][1]
    assert not finder.may_be_in(body)
    assert finder.spans(body, offsets, 10) == []


def test_contains_answer_searches_the_body_only(tiny):
    store = tiny.store
    found = [contains_answer(accepted(Question("?", ("1504",))), store, i) for i in range(40)]
    assert [i for i, there in enumerate(found) if there] == [4]
    assert "Ani" not in store.body(0) and not contains_answer(
        accepted(Question("?", (store.title(1) + " x",))), store, 1
    )


@pytest.fixture(scope="module")
def squad():
    """(context, answer) pairs of every eightieth article, and BERT's vocabulary."""
    with lzma.open(SHARED / "squad-train-v1.1.json.xz") as file:
        articles = json.load(file)["data"][::80]
    pairs = [
        (paragraph["context"], entry["answers"][0]["text"])
        for article in articles
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]
    return pairs, WordPieces.load(SHARED / "bert-base-uncased-vocab.txt")


@shared
def test_almost_all_squad_answers_are_found_in_their_paragraphs(squad):
    pairs, words = squad
    missed = []
    for context, answer in pairs:
        found = texts(words, context, [answer])
        if answer not in found:
            missed.append((answer, context))
        assert {normalise_answer(text) for text in found} <= {normalise_answer(answer)}
    assert len(pairs) > 1000
    # The missed answers are parts of a word: "dard" in "standard".
    inside = [re.search(rf"\w{re.escape(a)}|{re.escape(a)}\w", context) for a, context in missed]
    assert len(missed) < 0.01 * len(pairs) and all(inside)


def _all_spans(offsets, widest):
    for first in range(len(offsets)):
        for last in range(first, min(first + widest, len(offsets))):
            yield first, last


@shared
def test_every_correct_span_contains_a_span_that_is_found(squad):
    pairs, words = squad
    for context, answer in random.Random(0).sample(pairs, 20):
        question = Question("?", (answer,))
        offsets = words.pieces([context])[0][1]
        named = accepted(question).spans(context, offsets, 10)
        for first, last in _all_spans(offsets, 10):
            text = context[offsets[first, 0] : offsets[last, 1]]
            if normalise_answer(answer) and is_right(text, question):
                # The span written like the answer may have more punctuation than the shortest one.
                assert any(i <= last and j >= first for i, j in named), (answer, text)


@shared
def test_trec_expressions_match_real_text_like_the_official_scorer(squad):
    pairs, words = squad
    contexts = list(dict.fromkeys(context for context, _ in pairs))
    questions = read_questions(SHARED / "curatedtrec.large2180-train.tsv", "trec")
    rng, seen = random.Random(1), 0
    for question in rng.sample(questions, 200):
        official = re.compile(question.answers[0], re.I | re.U | re.M)
        anchored = re.search(r"[\^$]|\\b", question.answers[0])
        for context in rng.sample(contexts, 4):
            offsets = words.pieces([context])[0][1]
            named = accepted(question).spans(context, offsets, 10)
            for first, last in named:
                assert official.match(context[offsets[first, 0] : offsets[last, 1]])
            if not anchored:
                right = {
                    int(np.searchsorted(offsets[:, 0], offsets[first, 0]))
                    for first, last in _all_spans(offsets, 10)
                    if official.match(context[offsets[first, 0] : offsets[last, 1]])
                }
                assert right == {first for first, _ in named}
                seen += len(right)
    assert seen > 50
