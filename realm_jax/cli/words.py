"""Arguments as users type them: `~` in a flag, a glob without quotes, bytes that are not UTF-8."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

_FLAG_OF_HOME = re.compile(r"(--[\w.-]+=)(~(?:/.*)?)", re.DOTALL)


def expanded(arguments: Sequence[str]) -> list[str]:
    """The arguments with `~/` at the start of a value replaced: a shell leaves it inside a flag."""
    return [_expanded(argument) for argument in arguments]


def _expanded(argument: str) -> str:
    flag = _FLAG_OF_HOME.fullmatch(argument)
    if flag is not None:
        return flag[1] + str(Path(flag[2]).expanduser())
    return str(Path(argument).expanduser()) if argument.startswith("~/") else argument


def unknown(rest: Sequence[str], used: Sequence[str]) -> str:
    """The message about arguments that no flag takes; names the most likely cause.

    Args:
      rest: these arguments.
      used: all arguments.
    """
    first = rest[0]
    message = f"unknown argument {first!r}"
    if first.startswith("-"):
        return message
    if _exists(first):
        flag = next(
            (one for one in reversed(used[: used.index(first)]) if one[:2] == "--"), "--input"
        )
        name = flag.partition("=")[0]
        return f"{message}: the shell has expanded a glob; quote it, as in {name}='notes/*.txt'"
    return f"{message}: put a text of several words in quotes"


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a text that is too long for a name
        return False


def text(argument: str) -> str:
    """A text that is not a path, such as a question: valid UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raw = argument.encode(errors="surrogateescape")
        raise argparse.ArgumentTypeError(
            f"expected UTF-8, found bytes of another encoding: {raw!r}; set the terminal to UTF-8"
        ) from None
    return argument


def some(argument: str) -> str:
    """A value that is not empty, as that of an unset variable is; such a path would be `.`."""
    if not argument:
        raise argparse.ArgumentTypeError("expected a value, found none; . is the current folder")
    return argument


def some_path(argument: str) -> Path:
    """`some`, as a path."""
    return Path(some(argument))


def on_disk(argument: str) -> str:
    """`some`, of a file or folder that cannot be on an object store: only run folders can."""
    from etils import epath

    from realm_jax.storage import files  # here: it imports NumPy, which takes long

    if not files.is_local(epath.Path(some(argument))):
        raise argparse.ArgumentTypeError(
            f"expected a path on a local disk, found {argument!r}; only run folders may be on an "
            "object store"
        )
    return argument
