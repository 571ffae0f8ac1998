"""The scripts of `launch/`, and what their dry runs print."""

import importlib.util
import shlex
import subprocess
from pathlib import Path

from realm_jax.cli import exit_codes

LAUNCH = Path(__file__).parents[2] / "launch"


def commit(folder, *names):
    """Makes a git repository of a folder, whose HEAD has files and folders of these names."""
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", *names], [*author, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def script(name, launch=LAUNCH):
    """Returns the module of `launch/NAME.py`."""
    spec = importlib.util.spec_from_file_location(f"launch_{name}", launch / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(capsys, name, *arguments):
    """Returns the output of a dry run."""
    capsys.readouterr()
    code = script(name).main([*arguments, "--dry_run"])
    out, err = capsys.readouterr()
    assert code == exit_codes.DONE, err
    return out


def refused(capsys, name, *arguments):
    """Returns the error message of an invalid run; asserts that stdout is empty."""
    capsys.readouterr()
    assert script(name).main([*arguments, "--dry_run"]) == exit_codes.ERROR
    out, err = capsys.readouterr()
    assert not out
    return err


def words(line):
    """Returns the words of a shell command."""
    return shlex.split(line)
