"""Regular expressions from question files: compiled strictly, and bounded in time."""

import logging
import re
import time
from typing import Any

import regex

from realm_jax.errors import InputError

MOST_CHARACTERS = 10_000  # of an expression; CuratedTREC's longest has 1,310
# Of processor time for one text, which other threads use up too; CuratedTREC takes microseconds.
MOST_SECONDS = 2.0

log = logging.getLogger(__name__)


class Expression:
    """A regular expression, case-insensitive, `^` and `$` at line ends, as CuratedTREC is scored.

    One that does not finish within `MOST_SECONDS` is given up for good: it matches nothing from
    then on, and a warning names it. What it would have matched is lost, and nothing hangs.

    Args:
      pattern: in the syntax of Python's `re`.
      where: file and line, for the messages.

    Raises:
      InputError: `re` does not accept it, or it is too long.
    """

    def __init__(self, pattern: str, where: object = None):
        if len(pattern) > MOST_CHARACTERS:
            raise InputError(
                "regular expression is too long",
                where=where,
                expected=f"at most {MOST_CHARACTERS} characters",
                found=len(pattern),
            )
        try:
            re.compile(pattern, re.I | re.U | re.M)  # the official scorer's own judgement
            self._compiled = regex.compile(pattern, regex.I | regex.U | regex.M | regex.V0)
        except (re.error, regex.error, RecursionError, OverflowError) as error:
            raise InputError(
                "regular expression does not compile",
                where=where,
                expected="the syntax of Python's re",
                found=f"{error}: {pattern[:200]}",
                fix="mend or remove this line",
            ) from error
        self.pattern, self.given_up = pattern, False

    def begins(self, text: str) -> bool:
        """Whether the expression matches at the start of `text`: the official rule."""
        return self.first_end(text, _deadline()) is not None

    def found_in(self, text: str) -> bool:
        """Whether the expression matches anywhere in `text`."""
        return self._bounded(self._compiled.search, text, _deadline()) is not None

    def starts(self, text: str, until: float) -> list[int]:
        """Every character at which a match of at least one character begins."""
        return self._bounded(self._all_starts, text, until) or []

    def first_end(self, text: str, until: float) -> int | None:
        """Where the match at the start of `text` ends, or None.

        Args:
          text: to look at.
          until: on the clock of `time.monotonic`.
        """
        match = self._bounded(self._compiled.match, text, until)
        return None if match is None else match.end()

    def _all_starts(self, text: str, timeout: float) -> list[int]:
        found = self._compiled.finditer(text, overlapped=True, timeout=timeout)
        return [match.start() for match in found if match.end() > match.start()]

    def _bounded(self, work: Any, text: str, until: float) -> Any:
        if self.given_up:
            return None
        try:
            return work(text, timeout=max(until - time.monotonic(), 1e-3))
        except (TimeoutError, MemoryError) as error:
            self.given_up = True
            log.warning("gave up on a regular expression (%s): %s", error, self.pattern[:200])
            return None


def _deadline() -> float:
    return time.monotonic() + MOST_SECONDS
