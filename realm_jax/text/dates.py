"""Dates and years in running text, by one bounded regular expression.

REALM marks dates as salient spans beside named entities; its pattern was never published, so this
one is our own. A date is the longest of: a day, a month of a year, a season of a year, a decade, a
century or millennium, a range of years, a year. Months and weekdays alone are not dates.
"""

import re

_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?)"
)
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?"
_DAYS = rf"{_DAY}(?:\s?[–-]\s?{_DAY})?"
_ERA = r"(?:BCE?|CE|AD|B\.C\.(?:E\.)?|A\.D\.)"
_FULL_YEAR = r"(?:1[0-9]{3}|20[0-9]{2})"
_YEAR = rf"(?:{_FULL_YEAR}|[1-9][0-9]{{0,4}}(?=\s?{_ERA}))(?:\s?{_ERA})?"
_ORDINAL = (
    r"(?:[0-9]{1,2}(?:st|nd|rd|th)|(?:twenty-)?(?:first|second|third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth)|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|sixteenth"
    r"|seventeenth|eighteenth|nineteenth|twentieth)"
)
# A bare number is a year unless it counts or measures something.
_NOT_COUNTED = (
    r"(?![\s-]?(?:%|°|km|kilomet|cm|mm|m\b|met(?:er|re)|mi\b|miles|ft|feet|inch|kg|g\b|grams|lb|ton|mg"
    r"|people|men\b|women|inhabitants|troops|soldiers|dollars|euros|pounds|percent|per\b|million"
    r"|billion|species|members|students|volts|watts|hours|minutes|seconds|days|years?|times"
    r"|page|foot|mile|acre|seat|man\b))"
)

_DATE = re.compile(
    r"(?<![\w$£€.,:/+=-])(?:"
    + "|".join(
        [
            rf"{_DAYS}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?",
            rf"{_MONTH}\s+{_DAYS}(?:,?\s+{_YEAR})?",
            rf"{_MONTH},?(?:\s+of)?\s+{_YEAR}",
            rf"[0-9]{{4}}-[01][0-9]-[0-3][0-9]|[0-3]?[0-9]/[0-3]?[0-9]/{_FULL_YEAR}",
            rf"(?:[Ss]pring|[Ss]ummer|[Aa]utumn|[Ff]all|[Ww]inter)(?:\s+of)?\s+{_YEAR}",
            r"(?:AD|A\.D\.)\s?[1-9][0-9]{0,3}(?:\s?[–-]\s?[0-9]{1,4})?",
            rf"[1-9][0-9]{{0,2}}0s(?:\s?{_ERA})?|[’'][0-9]0s",
            rf"{_ORDINAL}(?:\s+|-)(?:century|millennium)(?:\s?{_ERA})?",
            rf"[1-9][0-9]{{0,3}}\s?[–-]\s?[1-9][0-9]{{0,3}}\s?{_ERA}",
            rf"{_FULL_YEAR}\s?(?:[–/-]|to)\s?(?:{_FULL_YEAR}|[0-9]{{2}})(?:\s?{_ERA})?",
            rf"{_YEAR}{_NOT_COUNTED}",
        ]
    )
    + r")(?![\w%])(?![.,:/][0-9])(?!-[0-9])"
)


def date_spans(text: str) -> list[tuple[int, int]]:
    """Character spans (start, stop) of the dates in `text`, in order, none overlapping."""
    return [match.span() for match in _DATE.finditer(text)]
