"""Checks the arguments of `Run`: paths, texts, counts and passage ids of users of Python."""

import os
from collections.abc import Iterable, Mapping, Set
from operator import index
from typing import Any

from realm_jax import config_paths
from realm_jax.errors import InputError
from realm_jax.text.surrogates import UNPAIRED_SURROGATE

_NOT_LISTS = (str, bytes, Mapping, Set)  # of a mapping the keys, of a set no order would be used

AnyPath = str | os.PathLike[str]


def paths_of(paths: Mapping[str, AnyPath]) -> dict[str, str]:
    """Returns config keys with their paths as strings.

    Raises:
      InputError: a key is not that of an input.
    """
    for key in paths:
        if key not in config_paths.KEYS:
            raise InputError(
                "not the config key of an input's path",
                where="paths",
                expected=", ".join(config_paths.KEYS),
                found=key,
            )
    return {key: os.fspath(path) for key, path in paths.items()}


def texts_of(texts: Any, where: str) -> list[str]:
    """Returns one text or several as a list.

    Raises:
      InputError: one of them is not a string, or is no Unicode text.
    """
    several = isinstance(texts, Iterable) and not isinstance(texts, _NOT_LISTS)
    many = list(texts) if several else [texts]
    for text in many:
        require_text(text, where)
    return many


def require_text(value: object, where: str) -> None:
    """Raises an InputError if a value is not a string, or is no Unicode text."""
    if not isinstance(value, str):
        raise InputError(
            "the value is not a text",
            where=where,
            expected="a string",
            found=f"{type(value).__name__} {value!r}"[:60],
        )
    if UNPAIRED_SURROGATE.search(value):
        raise InputError(
            "the text is not Unicode",
            where=where,
            expected="a string without unpaired surrogates",
            found=ascii(value[:60]),
            fix='text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")',
        )


def whole_number(value: Any, where: str) -> int:
    """Returns a whole number of any type, such as one of numpy.

    Raises:
      InputError: it is another value.
    """
    try:
        return index(value)
    except TypeError as error:
        raise InputError(
            "the value is not a whole number",
            where=where,
            expected="an int",
            found=f"{type(value).__name__} {value!r}"[:60],
        ) from error


def count_of(value: Any, where: str) -> int:
    """Returns a number of passages.

    Raises:
      InputError: it is not a whole number, or less than 1.
    """
    count = whole_number(value, where)
    if count < 1:
        raise InputError(
            "too few passages requested", where=where, expected="at least 1", found=count
        )
    return count
