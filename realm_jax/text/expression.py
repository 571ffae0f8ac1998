"""Regular expressions from question files, with a time limit."""

import logging
import re
import time
from typing import Any

import regex

from realm_jax.errors import InputError

MOST_CHARACTERS = 10_000  # of an expression; CuratedTREC's longest has 1,310
# Time limit per text. CuratedTREC's expressions take microseconds.
MOST_SECONDS = 2.0

log = logging.getLogger(__name__)


class Expression:
    """A case-insensitive, multi-line regular expression, as the CuratedTREC scorer compiles it.

    If a match takes longer than `MOST_SECONDS`, the expression is disabled: it logs a warning and
    matches nothing from then on.

    Args:
      pattern: in the syntax of Python's `re`.
      where: file and line, for error messages.

    Raises:
      InputError: the pattern is invalid or too long.
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
            re.compile(pattern, re.I | re.U | re.M)  # as the official scorer does
            self._compiled = regex.compile(pattern, regex.I | regex.U | regex.M | regex.V0)
        except (re.error, regex.error, RecursionError, OverflowError) as error:
            raise InputError(
                "regular expression does not compile",
                where=where,
                expected="the syntax of Python's re",
                found=f"{error}: {pattern[:200]}",
                fix="correct or remove this line",
            ) from error
        self.pattern, self.disabled = pattern, False

    def begins(self, text: str) -> bool:
        """Whether the expression matches at the start of `text` (the official rule)."""
        return self.first_end(text, _deadline()) is not None

    def found_in(self, text: str) -> bool:
        """Whether the expression matches anywhere in `text`."""
        return self._bounded(self._compiled.search, text, _deadline()) is not None

    def starts(self, text: str, until: float) -> list[int]:
        """Every position where a match of at least one character begins."""
        return self._bounded(self._all_starts, text, until) or []

    def first_end(self, text: str, until: float) -> int | None:
        """End of the match at the start of `text`, or None.

        Args:
          text: the text to search.
          until: deadline on the clock of `time.monotonic`.
        """
        match = self._bounded(self._compiled.match, text, until)
        return None if match is None else match.end()

    def _all_starts(self, text: str, timeout: float) -> list[int]:
        found = self._compiled.finditer(text, overlapped=True, timeout=timeout)
        return [match.start() for match in found if match.end() > match.start()]

    def _bounded(self, work: Any, text: str, until: float) -> Any:
        if self.disabled:
            return None
        try:
            return work(text, timeout=max(until - time.monotonic(), 1e-3))
        except (TimeoutError, MemoryError) as error:
            self.disabled = True
            log.warning("regular expression disabled (%s): %s", error, self.pattern[:200])
            return None


def _deadline() -> float:
    return time.monotonic() + MOST_SECONDS
