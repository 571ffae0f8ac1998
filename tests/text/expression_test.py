"""Regular-expression answers match as in the official scorer, with a time limit."""

import re
import time

import pytest

from realm_jax.errors import InputError
from realm_jax.text import expression
from realm_jax.text.expression import MOST_CHARACTERS, Expression

HANGS = [
    (r"(a|aa)+$", "a" * 400 + "b"),
    (r"(x+x+)+y|(a|a)*[^a]{2}z", "a" * 400),
    (r"^(\w|\w\w|\w+)+$", "word" * 200 + "!"),
]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("Sept?(ember)?|Feb(ruary)?", "SEPTEMBER 1"),
        (r"19\d\d", "in 1984"),
        (r"^\s*N\s*$", "one\n N \ntwo"),
        (r"(5,?778|6,?[05]00)\s*K|5778\.0", "about 5,778 K"),
        (r"Jes\ús Gil", "Jesús Gil"),
        ("Straße", "STRASSE"),
        ("é", "E\u0301"),
        (r"\bK", "5\u212a K"),
        ("x*", "y"),
    ],
)
def test_matches_equal_those_of_re(pattern, text):
    official = re.compile(pattern, re.I | re.U | re.M)
    ours = Expression(pattern)
    assert ours.found_in(text) == bool(official.search(text))
    assert ours.begins(text) == bool(official.match(text))
    until = time.monotonic() + 60
    starts = [i for i in range(len(text)) if (m := official.match(text, i)) and m.end() > i]
    assert ours.starts(text, until) == starts


@pytest.fixture
def soon(monkeypatch):
    """Sets a short time limit for expressions."""
    monkeypatch.setattr(expression, "MOST_SECONDS", 0.05)


@pytest.mark.parametrize(("pattern", "text"), HANGS)
def test_a_slow_expression_is_disabled_with_a_warning(pattern, text, caplog, soon):
    hanging = Expression(pattern)
    assert not hanging.found_in(text)
    assert hanging.disabled
    assert pattern in caplog.text
    assert not hanging.found_in("aaaaac!z")
    assert not hanging.begins("")
    assert hanging.starts("aaa", time.monotonic() + 9) == []


def test_a_fast_expression_stays_enabled(soon):
    wood = Expression("wood")
    assert wood.begins("Wood" * 1000) and not wood.disabled


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "*a", "a{99999999999}", "(?P<a", "\\", r"\q", "(?<=a+)b", "(" * 5000 + ")" * 5000],
)
def test_an_invalid_expression_is_refused_with_its_position(pattern):
    with pytest.raises(InputError, match="does not compile") as error:
        Expression(pattern, "trec.tsv:7")
    assert "trec.tsv:7" in str(error.value)


def test_an_expression_that_is_too_long_is_refused():
    Expression("a" * MOST_CHARACTERS)
    with pytest.raises(InputError, match="too long"):
        Expression("a" * (MOST_CHARACTERS + 1), "trec.tsv:7")
