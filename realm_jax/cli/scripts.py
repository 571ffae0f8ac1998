"""Flags and exit codes of the scripts in `experiments/` and `launch/`."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from etils import epath

from realm_jax.cli import words
from realm_jax.cli.launching import check_overrides
from realm_jax.errors import InputError, RealmError
from realm_jax.storage import files


def script_parser(docstring: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the script, as it is written; no path is empty."""
    parser = argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.register("type", Path, words.some_path)
    return parser


def parse_script(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """The flags of this process, and its config overrides, --config.KEY=VALUE.

    Any other argument ends the process with an error.
    """
    arguments, overrides = parser.parse_known_args()
    try:
        return arguments, check_overrides(overrides)
    except InputError as error:
        parser.error(str(error))


def require_same_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of what a script makes in a folder; later calls must have the same.

    Raises:
      InputError: the folder has results of other settings.
    """
    path, content = folder / "settings.json", json.loads(json.dumps(settings))
    if not path.exists():
        files.write_bytes(epath.Path(path), f"{json.dumps(content, indent=1)}\n".encode())
        return
    before = json.loads(path.read_text())
    if before != content:
        differing = {
            key for key in before.keys() | content.keys() if before.get(key) != content.get(key)
        }
        raise InputError(
            "the folder has results of other settings",
            where=folder,
            expected=", ".join(f"{key} {before.get(key)}" for key in sorted(differing)),
            found=", ".join(f"{key} {content.get(key)}" for key in sorted(differing)),
            fix="give the same settings, or another folder; or delete this one",
        )


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the exit code of `main`, or with the message of its RealmError."""
    try:
        sys.exit(main())
    except RealmError as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has printed its error
