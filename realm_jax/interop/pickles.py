"""What the readers of other people's pickles share: names that a pickle may call and not change."""

import pickle
from collections.abc import Callable
from typing import Any

# What unpickling damaged bytes raises.
BROKEN = (
    EOFError,
    pickle.UnpicklingError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,  # of lengths that no file has
    OverflowError,
    TypeError,
    ValueError,
)


class Allowed:
    """A function that a pickle may name; it has no attributes that the pickle could set."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]):
        object.__setattr__(self, "_call", call)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"the pickle sets {name} of a function")

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)
