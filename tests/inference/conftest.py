"""Fixtures of this folder."""

from support.accented_run import accents, answerer

__all__ = ["accents", "answerer"]
