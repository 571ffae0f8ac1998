"""Flags and exit codes of the scripts in `experiments/` and `launch/`."""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from etils import epath

from realm_jax.cli import exit_codes, machine_errors, words
from realm_jax.cli.launching import check_overrides
from realm_jax.errors import InputError, RealmError
from realm_jax.runtime import handled_signals, realm_command
from realm_jax.storage import files

_POLL_SECONDS = 0.2


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
    try:
        before = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(
            "the settings of the folder are damaged",
            where=path,
            expected="JSON",
            found=str(error),
            fix=f"delete {folder}, or give another folder",
        ) from error
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


def run_realm(*arguments: str, output: Path | None = None) -> None:
    """Runs `realm` with these arguments; a signal to this script stops it, after it has saved.

    Args:
      arguments: of `realm`.
      output: the file that gets its stdout; None: that of the script.

    Raises:
      CalledProcessError: `realm` failed and has printed its error, or was stopped.
    """
    command = realm_command(*arguments)
    with contextlib.ExitStack() as stack:
        stdout = None if output is None else stack.enter_context(output.open("wb"))
        stop = stack.enter_context(stop_signal())
        process = subprocess.Popen(command, stdout=stdout)
        while process.poll() is None:
            if stop.wait(_POLL_SECONDS):
                process.terminate()
                process.wait()
    code = exit_codes.STOPPED if stop.is_set() else process.returncode
    if code:
        raise subprocess.CalledProcessError(code, command)


@contextlib.contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that signals to stop set within the context, instead of ending the process."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in handled_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Ends the process with the exit code of `main`, or with the message of its error."""
    try:
        sys.exit(main())
    except RealmError as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has printed its error
    except machine_errors.KINDS as error:
        if (problem := machine_errors.problem_of(error)) is None:
            raise
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(exit_codes.STOPPED)
