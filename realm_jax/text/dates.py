"""Dates and years in running text, by one bounded regular expression.

REALM marks dates as salient spans, in addition to named entities (section 3.4), but its pattern was
not published. Here a date is the longest match of: a day (with its weekday), a month with a year, a
season, quarter or half of a year, a decade, a century or millennium, a range of any of these, or a
year. A prefix `mid-` is included. A month or weekday without day or year is not a date, and neither
is a number that counts something.
"""

import functools
import re

_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?)"
)
_WEEKDAY = r"(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\.?)"
_S = r"\s{1,3}"  # bounded, so that long whitespace does not slow the match
_DASH = r"\s?[–—-]\s?"
_TO = rf"(?:{_DASH}|{_S}(?:to|and|or|through|until){_S})"
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?"
_DAYS = rf"{_DAY}(?:{_TO}{_DAY})?"
_ERA = r"(?:BCE?|CE|AD|B\.C\.(?:E\.)?|A\.D\.|C\.E\.)"
_FULL_YEAR = r"(?:1[0-9]{3}|20[0-9]{2})"
_OLD_YEAR = r"[1-9](?:[0-9]{0,4}|[0-9]{0,2},[0-9]{3})"
_YEAR = rf"(?:{_FULL_YEAR}|{_OLD_YEAR}(?=\s?{_ERA}))(?:\s?{_ERA})?"
_ORDINAL = (
    r"(?:[0-9]{1,2}(?:st|nd|rd|th)|(?:[Tt]wenty-)?(?:[Ff]irst|[Ss]econd|[Tt]hird|[Ff]ourth|[Ff]ifth"
    r"|[Ss]ixth|[Ss]eventh|[Ee]ighth|[Nn]inth)|[Tt]enth|[Ee]leventh|[Tt]welfth|[Tt]hirteenth"
    r"|[Ff]ourteenth|[Ff]ifteenth|[Ss]ixteenth|[Ss]eventeenth|[Ee]ighteenth|[Nn]ineteenth"
    r"|[Tt]wentieth)"
)
_SEASON = r"(?:[Ss]pring|[Ss]ummer|[Aa]utumn|[Ff]all|[Ww]inter)"
_PART = r"(?:(?:[Ff]irst|[Ss]econd|[Tt]hird|[Ff]ourth|[Ll]ast)\s(?:quarter|half))"
_DECADE = r"[1-9][0-9]{0,2}0s"
# A number without context is a year unless a unit or counted noun follows.
_NOT_COUNTED = (
    r"(?![\s-]?(?:%|°|km|kilomet|cm|mm|m\b|met(?:er|re)|mi\b|miles|ft|feet|inch|kg|g\b|grams|lb|ton|mg"
    r"|people|men\b|women|inhabitants|troops|soldiers|dollars|euros|pounds|percent|per\b|million"
    r"|billion|species|members|students|volts|watts|hours|minutes|seconds|days|years?|times"
    r"|page|foot|mile|acre|seat|man\b))"
)

_DATE = (
    r"(?<![\w$£€.,:/+=#-])(?:[Mm]id-?\s?)?(?:"
    + "|".join(
        [
            rf"(?:{_WEEKDAY},?{_S})?{_DAY}{_S}{_MONTH}{_TO}{_DAY}{_S}{_MONTH},?{_S}{_YEAR}",
            rf"(?:{_WEEKDAY},?{_S})?{_DAYS}(?:{_S}of)?{_S}{_MONTH}(?:,?{_S}{_YEAR})?",
            rf"(?:{_WEEKDAY},?{_S})?{_MONTH}{_S}{_DAY}{_TO}{_MONTH}{_S}{_DAY},?{_S}{_YEAR}",
            rf"(?:{_WEEKDAY},?{_S})?{_MONTH}{_S}{_DAYS}(?:,?{_S}{_YEAR})?",
            rf"{_MONTH}(?:{_TO}{_MONTH})?,?(?:{_S}of)?{_S}{_YEAR}",
            r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
            rf"[0-3]?[0-9]([./])[0-3]?[0-9]\1{_FULL_YEAR}|[0-3]?[0-9]/[0-3]?[0-9]/[0-9]{{2}}",
            rf"{_SEASON}(?:{_S}of)?{_S}{_YEAR}(?:[–/-][0-9]{{2}})?",
            rf"{_PART}{_S}of{_S}{_YEAR}",
            rf"(?:AD|A\.D\.|CE)\s?[1-9][0-9]{{0,3}}(?:{_DASH}[0-9]{{1,4}})?",
            rf"{_DECADE}(?:{_DASH}{_DECADE})?(?:\s?{_ERA})?|[’'‘][0-9]0s",
            rf"{_ORDINAL}(?:{_TO}(?:the{_S})?{_ORDINAL})?(?:{_S}|-)"
            rf"(?:centur(?:y|ies)|millenni(?:um|a))(?:\s?{_ERA})?",
            rf"{_OLD_YEAR}(?:\s?{_ERA})?{_DASH}{_OLD_YEAR}\s?{_ERA}",
            rf"{_FULL_YEAR}(?:\s?[–/—-]\s?|\sto\s)(?:{_FULL_YEAR}|[0-9]{{2}})(?:\s?{_ERA})?",
            rf"{_YEAR}{_NOT_COUNTED}",
        ]
    )
    + r")(?![\w%])(?![.,:/][0-9])(?!-[0-9])"
)


@functools.cache
def _pattern() -> re.Pattern[str]:
    """The compiled expression. Compilation takes 0.2 s, for which most commands need not wait."""
    return re.compile(_DATE)


def date_spans(text: str) -> list[tuple[int, int]]:
    """Character spans (start, stop) of the dates in `text`, in order and without overlap."""
    return [match.span() for match in _pattern().finditer(text)]
