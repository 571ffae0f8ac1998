"""`realm completion`: the completion script of a shell for verbs, flags and config keys."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable
from typing import Any

from realm_jax import config_paths
from realm_jax.cli.overrides import PATHS

EXAMPLE = 'eval "$(realm completion bash)"'
COMPLETING = "_ARGCOMPLETE"  # set by a shell that requests completions
NEEDED = ["argcomplete"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(json=False)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints the script."""
    from realm_jax.cli import extras

    extras.require("completion", NEEDED, "shell completion needs a package that is not installed")
    import argcomplete

    sys.stdout.write(argcomplete.shellcode(["realm"], shell=arguments.shell))
    return {}


def is_asked() -> bool:
    """Whether a shell asks for completions."""
    return COMPLETING in os.environ


def asked_words() -> list[str]:
    """The words on the command line so far, without `realm`."""
    try:
        return shlex.split(os.environ.get("COMP_LINE", ""))[1:]
    except ValueError:  # a quote that is still open
        return os.environ.get("COMP_LINE", "").split()[1:]


def answer(parser: argparse.ArgumentParser, verb: argparse.ArgumentParser | None) -> None:
    """Prints the completions and ends the process; config keys count as flags."""
    import argcomplete

    for one in _overridable(verb) if verb else ():
        for key in _keys(one.get_default("overridable")):
            one.add_argument(f"--config.{key}=")  # no blank is added after it
    argcomplete.autocomplete(parser)


def _keys(which: str) -> Iterable[str]:
    """The config keys that a verb accepts."""
    from realm_jax import config as config_lib

    return config_paths.KEYS if which == PATHS else config_lib.keys(config_lib.default())


def _overridable(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser and those of its sub-verbs, if they accept `--config.KEY=VALUE`."""
    below = [
        child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for child in action.choices.values()
    ]
    return [one for one in [parser, *below] if one.get_default("overridable")]
