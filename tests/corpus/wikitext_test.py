"""MediaWiki markup becomes the prose of the page; never slowly, whatever the page contains."""

import re
import time

import mwparserfromhell
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm_jax.corpus.wikitext import plain_text

PAGE = """{{Infobox town
| name = Oslo {{small|capital}}
| map = {{Location map|Norway|label=}}
}}
[[File:Oslo.jpg|thumb|250px|The [[harbour]] of Oslo]]
'''Oslo''' ({{IPA|ˈùːʂlʊ}}; {{lang|sma|Oslove}}) is the [[capital city|capital]] of [[Norway]].<ref
name="a">{{cite web |url=https://example.org |title=Oslo}}</ref> It has
''{{formatnum:700000}}'' people<!-- of 2020 -->
and 1&nbsp;000 [[lake]]s.<ref name="a" />

== History ==
Founded in {{circa|1040}} by [[Harald III of Norway|Harald]], see [https://oslo.no its site].
{| class="wikitable"
! Year !! People
|-
| 1800 || {{formatnum:9500}}
|}
* First [[item]]
# Second<br />item

<gallery>
A.jpg|One
</gallery>
[[Category:Towns|Oslo]]
[[no:Oslo]]
__NOTOC__
"""
TEXT = """Oslo is the capital of Norway. It has
people
and 1 000 lakes.

Founded in  by Harald, see its site.

First item
Second
item"""


def test_a_page_becomes_its_prose():
    assert plain_text(PAGE) == TEXT


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{never closed. Text.", "{{never closed. Text."),
        ("A {{b {{c}} d. Text.", "A {{b  d. Text."),
        ("A }} b ]] c.", "A }} b ]] c."),
        ("A [[b c.", "A [[b c.".replace("[[", "")),
        ("{|\n| never closed\nText.", "{|\nText."),
        ("A<ref>b. Text.", "A b. Text.".replace(" b", "b")),
        ("A<ref>b<ref>c</ref> d.", "Ab d."),
        ("A<ref name=x/> b<ref name='y' /> c.", "A b c."),
        ("[[Datei:Oslo.jpg|mini|Der [[Hafen]]]] Text.", "Text."),
        ("[[:Category:Towns]] and [[Help:Me|help]].", "Category:Towns and help."),
        ("[[Star Trek: Voyager]] and [[a|b]].", "Star Trek: Voyager and b."),
        ("{{x|}}A.", "A."),
        ("奥斯陆（{{lang|no|Oslo}}；）是首都。[[分类:城市|O]]", "奥斯陆是首都。"),
        ("奥斯陆（{{lang|no|Oslo}}，首都）。", "奥斯陆（首都）。"),
        ("x {| y |} z", "x {| y |} z"),
        ("Law & Order: a < b and c > d.", "Law & Order: a < b and c > d."),
        ("= = =\n== A ==\nB == c.", "B == c."),
    ],
)
def test_unbalanced_and_rare_markup(source, text):
    assert plain_text(source) == text


def test_words_are_those_of_the_reference_parser():
    code = mwparserfromhell.parse(PAGE)
    expected = set(re.findall(r"\w+", code.strip_code()))
    ours = set(re.findall(r"\w+", plain_text(PAGE)))
    assert ours <= expected | {"Second", "item"}
    assert expected - ours <= {
        "History",
        "thumb",
        "250px",
        "The",
        "harbour",
        "Second",
        "item",
    } | set(
        re.findall(
            r"\w+",
            "Year People 1800 A jpg One Category Towns no 700000 __NOTOC__ Seconditem ref name a",
        )
    )


PARTS = ["{{", "}}", "[[", "]]", "]]{{", "{|\n", "|}\n", "<ref>", "<ref", "<!--", "[http://"]
PARTS += ["[http://a ", "'''", "[[a|", "(", "\n ", "=", "{|", ":{|"]


@pytest.mark.parametrize("part", PARTS)
def test_time_grows_with_the_length_only(part):
    def seconds(count):
        begun = time.process_time()
        plain_text(part * count)
        return time.process_time() - begun

    # The time of a quadratic pattern would be minutes.
    assert seconds(50_000) < 20


@pytest.mark.parametrize("start", ["[//", "[http://", "[http://a "])
def test_a_link_that_never_ends_takes_no_longer_than_other_text(start):
    begun = time.process_time()
    assert len(plain_text(start + "a" * 200_000)) > 200_000
    assert time.process_time() - begun < 20


@settings(deadline=None, max_examples=200, derandomize=True, database=None)
@given(st.lists(st.sampled_from(re.findall(r"\w+|\W", PAGE)), max_size=200).map("".join))
def test_any_markup_gives_text(source):
    assert len(plain_text(source)) <= len(source) + 10
