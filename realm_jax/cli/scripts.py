"""Flags and exit codes of the scripts in `experiments/` and `launch/`."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from realm_jax.cli.launching import check_overrides
from realm_jax.errors import InputError, RealmError


def script_parser(docstring: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the script, as it is written."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def parse_script(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """The flags of this process, and its config overrides, --config.KEY=VALUE.

    Any other argument ends the process with an error.
    """
    arguments, overrides = parser.parse_known_args()
    try:
        return arguments, check_overrides(overrides)
    except InputError as error:
        parser.error(str(error))


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the exit code of `main`, or with the message of its RealmError."""
    try:
        sys.exit(main())
    except RealmError as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has printed its error
