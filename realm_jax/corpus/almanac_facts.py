"""The facts of the almanac, from the Unicode CLDR data in the `babel` library.

There are four relations: the name of a territory, language or currency in another language; the
currency of a territory in a period; the share of its people who speak a language; the territory of
a time-zone city. The facts depend only on the version of babel.
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

NAME_LANGUAGES = 14  # languages kept for names: those with the most non-English names
HELD_OUT_SHARE = 0.1  # of the facts; they are in no training sentence and no training question
FIRST_DAY, LAST_DAY = datetime.date(1700, 1, 1), datetime.date(2025, 1, 1)
_NOT_A_PLACE = {"EU", "EZ", "QO", "UN", "XA", "XB", "ZZ"}
_DUPLICATE_LOCALES = {"nb", "nn", "pcm", "zxx", "mul", "und", "root", "en"}
_Table = Callable[[babel.Locale], Mapping[str, str]]


@dataclass(frozen=True)
class Fact:
    """One fact; `answer` is the span that its sentence masks.

    `relation` is `name`, `currency`, `language` or `city`. `qualifier` is the language of a name,
    the years of a currency, or the language of a share.
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
        """Whether this fact is stated only in the knowledge corpus, never in training text."""
        return zlib.crc32(self.key.encode()) % 1000 < 1000 * HELD_OUT_SHARE


def all_facts() -> list[Fact]:
    """All facts of the almanac, grouped by subject, in a fixed order."""
    english = babel.Locale("en")
    territories = {
        code: name
        for code, name in sorted(english.territories.items())
        if re.fullmatch("[A-Z]{2}", code) and code not in _NOT_A_PLACE and _plain(name)
    }
    locales = _name_locales(territories)
    languages = {code: name for code, name in sorted(english.languages.items()) if _plain(name)}
    currencies = {c: n for c, n in sorted(english.currencies.items()) if _plain(n)}
    tables: tuple[tuple[dict[str, str], _Table], ...] = (
        (territories, lambda locale: locale.territories),
        (languages, lambda locale: locale.languages),
        (currencies, lambda locale: locale.currencies),
    )
    facts = [fact for things, table in tables for fact in _names(things, locales, table)]
    counts = Counter(fact.qualifier for fact in facts)
    kept = {language for language, _ in counts.most_common(NAME_LANGUAGES)}
    facts = [fact for fact in facts if fact.qualifier in kept]
    for code, name in territories.items():
        facts += _currencies(code, name, english)
        facts += _languages(code, name, english)
    facts += _cities(territories)
    return list(dict.fromkeys(facts))


def _name_locales(territories: dict[str, str]) -> dict[str, babel.Locale]:
    """Locales in Latin letters with names of most territories and many languages, by language."""
    english = babel.Locale("en")
    chosen = {}
    for code in sorted(localedata.locale_identifiers()):
        if "_" in code or code in _DUPLICATE_LOCALES or code not in english.languages:
            continue
        locale = babel.Locale(code)
        names = [locale.territories[t] for t in territories if t in locale.territories]
        not_english = sum(name not in english.territories.values() for name in names)
        many = len(names) > 0.9 * len(territories) and len(locale.languages) > 150
        if many and not_english >= 100 and sum(map(_plain, names)) > 0.8 * len(names):
            chosen[english.languages[code]] = locale
    return chosen


def _names(
    things: dict[str, str], locales: dict[str, babel.Locale], table: _Table
) -> Iterator[Fact]:
    """The name of each thing (code -> English name) in each language."""
    for code, name in things.items():
        for language, locale in locales.items():
            other = table(locale).get(code)
            if other and _plain(other) and _short(other) and other.casefold() != name.casefold():
                yield Fact("name", name, language, other)


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
        spoken, share = english.languages.get(language, ""), float(row["population_percent"] or 0)
        if _plain(spoken) and share >= 1:
            yield Fact("language", name, spoken, f"{share:g} percent")


def _cities(territories: dict[str, str]) -> Iterator[Fact]:
    for zone, code in sorted(get_global("zone_territories").items()):
        city = zone.rsplit("/", 1)[-1].replace("_", " ")
        if "/" in zone and code in territories and _plain(city):
            yield Fact("city", city, "", territories[code])


def _plain(name: str) -> bool:
    """Whether a name is short and has only Latin letters, without brackets, digits or commas."""
    short = 2 <= len(name) <= 28 and len(name.split()) <= 4
    return short and all(_plain_letter(c) for c in name)


def _short(answer: str) -> bool:
    """Whether an answer has few word pieces, so that a small model can predict all of them."""
    return len(answer) <= 20 and len(answer.split()) <= 2


def _plain_letter(letter: str) -> bool:
    return letter in " -'’" or "LATIN" in unicodedata.name(letter, "")
