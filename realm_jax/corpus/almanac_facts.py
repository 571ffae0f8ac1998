"""The almanac's facts, read from the Unicode CLDR data that the `babel` library ships.

Four kinds: what a territory, language or currency is called in other tongues; which currency a
territory used and when; which languages its people speak; which time-zone city lies in it. The
facts depend on nothing but the version of babel: no seed, no clock, no network.
"""

import datetime
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import babel
from babel import localedata
from babel.core import get_global
from babel.languages import get_territory_language_info
from babel.numbers import get_territory_currencies

TONGUES = 14  # those with most names that differ from the English ones
HELD_OUT_SHARE = 0.1  # of the facts: in no training sentence and no training question
FIRST_DAY, LAST_DAY = datetime.date(1700, 1, 1), datetime.date(2025, 1, 1)
_NOT_A_PLACE = {"EU", "EZ", "QO", "UN", "XA", "XB", "ZZ"}
_TWINS = {"nb", "nn", "pcm", "zxx", "mul", "und", "root", "en"}  # another locale's names again
_Table = Callable[[babel.Locale], Mapping[str, str]]


@dataclass(frozen=True)
class Fact:
    """One fact; `answer` is what the sentence about it leaves blank.

    `relation` is `name`, `currency`, `language` or `city`; `qualifier` is the tongue of a name, the
    years of a currency or the language of a share.
    """

    relation: str
    subject: str
    qualifier: str
    answer: str

    @property
    def key(self) -> str:
        return f"{self.relation}|{self.subject}|{self.qualifier}|{self.answer}"

    @property
    def held_out(self) -> bool:
        """Whether training never states this fact outside the knowledge corpus."""
        return zlib.crc32(self.key.encode()) % 1000 < 1000 * HELD_OUT_SHARE


def all_facts() -> list[Fact]:
    """Every fact of the almanac, each subject's facts together, in a fixed order."""
    english = babel.Locale("en")
    territories = {
        code: name
        for code, name in sorted(english.territories.items())
        if re.fullmatch("[A-Z]{2}", code) and code not in _NOT_A_PLACE and _plain(name)
    }
    tongues = _tongues(territories)
    languages = {code: name for code, name in sorted(english.languages.items()) if _plain(name)}
    currencies = {c: n for c, n in sorted(english.currencies.items()) if _plain(n)}
    tables: tuple[tuple[dict[str, str], _Table], ...] = (
        (territories, lambda tongue: tongue.territories),
        (languages, lambda tongue: tongue.languages),
        (currencies, lambda tongue: tongue.currencies),
    )
    facts = [fact for things, table in tables for fact in _names(things, tongues, table)]
    said = Counter(fact.qualifier for fact in facts)
    richest = {tongue for tongue, _ in said.most_common(TONGUES)}
    facts = [fact for fact in facts if fact.qualifier in richest]
    for code, name in territories.items():
        facts += _currencies(code, name, english)
        facts += _languages(code, name, english)
    facts += _cities(territories)
    return list(dict.fromkeys(facts))


def _tongues(territories: dict[str, str]) -> dict[str, babel.Locale]:
    """Locales written in Latin letters that name most territories and many languages."""
    english = babel.Locale("en")
    chosen = {}
    for code in sorted(localedata.locale_identifiers()):
        if "_" in code or code in _TWINS or code not in english.languages:
            continue
        tongue = babel.Locale(code)
        names = [tongue.territories[t] for t in territories if t in tongue.territories]
        own = sum(name not in english.territories.values() for name in names)
        many = len(names) > 0.9 * len(territories) and len(tongue.languages) > 150
        if many and own >= 100 and sum(map(_plain, names)) > 0.8 * len(names):
            chosen[english.languages[code]] = tongue
    return chosen


def _names(
    things: dict[str, str], tongues: dict[str, babel.Locale], table: _Table
) -> Iterator[Fact]:
    """What each thing, by code and English name, is called in each tongue."""
    for code, name in things.items():
        for tongue, locale in tongues.items():
            other = table(locale).get(code)
            if other and _plain(other) and _short(other) and other.casefold() != name.casefold():
                yield Fact("name", name, tongue, other)


def _currencies(code: str, name: str, english: babel.Locale) -> Iterator[Fact]:
    rows = get_territory_currencies(
        code, FIRST_DAY, LAST_DAY, tender=True, non_tender=False, include_details=True
    )
    for row in rows:
        currency = english.currencies.get(row["currency"], "")
        if row["from"] and _plain(currency):
            until = f" until {row['to'].year}" if row["to"] else ""
            yield Fact("currency", name, f"from {row['from'].year}{until}", currency)


def _languages(code: str, name: str, english: babel.Locale) -> Iterator[Fact]:
    for language, row in sorted(get_territory_language_info(code).items()):
        tongue, share = english.languages.get(language, ""), float(row["population_percent"] or 0)
        if _plain(tongue) and share >= 1:
            yield Fact("language", name, tongue, f"{share:g} percent")


def _cities(territories: dict[str, str]) -> Iterator[Fact]:
    for zone, code in sorted(get_global("zone_territories").items()):
        city = zone.rsplit("/", 1)[-1].replace("_", " ")
        if "/" in zone and code in territories and _plain(city):
            yield Fact("city", city, "", territories[code])


def _plain(name: str) -> bool:
    """Short, in Latin letters, without brackets, digits or commas: fit to stand in a sentence."""
    short = 2 <= len(name) <= 28 and len(name.split()) <= 4
    return short and all(_plain_letter(c) for c in name)


def _short(answer: str) -> bool:
    """Few enough word pieces for a small model to copy one by one."""
    return len(answer) <= 20 and len(answer.split()) <= 2


def _plain_letter(letter: str) -> bool:
    return letter in " -'’" or "LATIN" in unicodedata.name(letter, "")
