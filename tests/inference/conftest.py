"""Fixtures that this folder shares."""

from support.accented_run import accents, answerer

__all__ = ["accents", "answerer"]
