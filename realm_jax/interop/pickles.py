"""Shared by the safe pickle readers: allowed functions, and errors of damaged pickles."""

import pickle
from collections.abc import Callable
from typing import Any

# Exceptions that unpickling damaged bytes raises.
UNPICKLING_ERRORS = (
    EOFError,
    pickle.UnpicklingError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,  # from damaged lengths
    OverflowError,
    TypeError,
    ValueError,
)


class AllowedFunction:
    """A function that a pickle may call; it has no attributes that the pickle could set."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]):
        object.__setattr__(self, "_call", call)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"the pickle sets {name} of a function")

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)
