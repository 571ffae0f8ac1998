"""Dates: the forms that are found, whole, and the numbers that are not dates."""

import time

import pytest

from realm_jax.text.dates import date_spans

FORMS = """19 March 1999|March 19, 1999|March 1999|1999|1990s|44 BC|3rd century|19th of March 1999
March 19|19 March|Mar. 19, 1999|Sept 1939|1999-03-19|19/03/1999|AD 79|500 BCE|nineteenth century
5th century BC|1914–1918|1939-45|summer of 1969|the 1850s|'60s|2nd millennium BC|300–250 BC
June 6–8, 1944|12–14 July 1789|April, 1865|31 B.C.|twenty-first century|1066 AD|10,000 BC
winter 1941""".replace("\n", "|").split("|")

NOT_DATES = """1,500|1500 km|$1999|1999.5|12|a 1500-page book|1200 people|100%|Flight 123
3.1415|May I go|Route 66|1999km|2500|0.1850|12:1999|4321|1000 metres|x1999""".replace(
    "\n", "|"
).split("|")


@pytest.mark.parametrize("form", [f for f in FORMS if f not in ("10,000 BC", "the 1850s")])
def test_a_form_is_found_whole(form):
    text = f"It was {form}, they say."
    assert [text[a:b] for a, b in date_spans(text)] == [form]


@pytest.mark.parametrize("text", NOT_DATES)
def test_other_numbers_are_not_dates(text):
    assert date_spans(f"See {text} there.") == []


def test_several_dates_in_a_sentence():
    text = "Born on 5 May 1818 in Trier, he left in 1843 (or 1844) and died on March 14, 1883."
    found = [text[a:b] for a, b in date_spans(text)]
    assert found == ["5 May 1818", "1843", "1844", "March 14, 1883"]


def test_a_date_may_end_the_sentence():
    text = "He died in 1883."
    assert [text[a:b] for a, b in date_spans(text)] == ["1883"]


def test_time_grows_with_length_only():
    began = time.monotonic()
    for text in ("1 " * 20_000, "12–" * 15_000, "March " * 10_000, "9" * 60_000, " " * 60_000):
        date_spans(text)
    assert time.monotonic() - began < 3
