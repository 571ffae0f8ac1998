"""Date expressions that are found, and numbers that are not dates."""

import pytest

from realm_jax.text.dates import date_spans

# Forms of Wikipedia (2018) and of newswire; each is found completely.
FORMS = """19 March 1999|March 19, 1999|March 1999|1999|1990s|44 BC|3rd century|19th of March 1999
March 19|19 March|Mar. 19, 1999|Sept 1939|1999-03-19|19/03/1999|AD 79|500 BCE|nineteenth century
5th century BC|1914–1918|1939-45|summer of 1969|1850s|'60s|2nd millennium BC|300–250 BC
June 6–8, 1944|12–14 July 1789|April, 1865|31 B.C.|twenty-first century|1066 AD|10,000 BC
winter 1941|Thursday, March 14, 1996|Monday 5 May 1818|Sat. Dec. 6|22 Aug 1996|Aug 22nd|3 Oct.
Dec. 31, 1986|March 30 - April 2, 1996|28 July 1914 |30 June to 4 July, 1987|July 4th, 1776
October and November 1907|June–August 1914|1986/87|1986 to 1990|1990-1995|first quarter of 1987
second half of 1986|mid-1919|mid-1970s|mid-19th century|mid-seventh century BC|Nineteenth century
15th through 17th centuries|3rd and 4th centuries|nineteenth-century|1st century BCE
fifth century AD|15000 BCE|500 BC–70 AD|AD 69–79|A.D. 1000|70 CE|CE 132|3/14/87|01.07.2009|1.5.1945
May 5|May 1945|5 May|1960s–1970s|1850s BC|spring of 1871–72|autumn 2001|’90s|February of 1848
4th–5th centuries|second millennium|12 or 13 August 1961|1st of May|2018|1000|2099""".replace(
    "\n", "|"
).split("|")
FORMS = [form.strip() for form in FORMS]

NOT_DATES = """1,500|1500 km|$1999|1999.5|12|a 1500-page book|1200 people|100%|Flight 123
3.1415|May I go|Route 66|1999km|2500|0.1850|12:1999|4321|1000 metres|x1999|2000 years earlier
2000 seats|1,987|ISO 8652:2012|S1.1-2013|19.1-2005|curid=1164|1986.25|May|Monday|October
in March the army|1500 tonnes|1-0|3-6 6-4|15-12|555-1999|#1999|1999%|1200-seat hall|12,1999
March 5,000 men|40/100/1999|the decade|a century|centuries|century|8:30|12.50|+1999|1/2
3-4""".replace("\n", "|").split("|")


def test_there_are_more_than_sixty_date_forms():
    assert len(set(FORMS)) >= 85
    assert len(set(NOT_DATES)) >= 45


@pytest.mark.parametrize("form", FORMS)
def test_a_date_form_is_found_completely(form):
    text = f"It was {form}, they say."
    assert [text[a:b] for a, b in date_spans(text)] == [form]


@pytest.mark.parametrize("text", NOT_DATES)
def test_other_numbers_are_not_dates(text):
    assert date_spans(f"See {text} there.") == []


def test_several_dates_in_a_sentence_are_found():
    text = "Born on 5 May 1818 in Trier, he left in 1843 (or 1844) and died on March 14, 1883."
    found = [text[a:b] for a, b in date_spans(text)]
    assert found == ["5 May 1818", "1843", "1844", "March 14, 1883"]


def test_a_date_at_the_end_of_a_sentence_is_found():
    text = "He died in 1883."
    assert [text[a:b] for a, b in date_spans(text)] == ["1883"]


@pytest.mark.parametrize(
    "text, found",
    [
        ("1 " * 20_000, 0),
        ("12–" * 15_000, 0),
        ("March " * 10_000, 0),
        ("9" * 60_000, 0),
        (" " * 60_000, 0),
        ("Mon " * 15_000, 0),
    ],
    ids=["numbers", "ranges", "months", "digits", "blanks", "days"],
)
def test_long_runs_of_date_prefixes_take_little_time(text, found):
    assert len(date_spans(text)) == found
