"""Finds the commands and Python blocks in README, docs, `--help` texts and experiment scripts."""

import re
import shlex
from importlib import import_module
from pathlib import Path

from realm_jax.cli.main import VERBS

ROOT = Path(__file__).parents[2]
SCRIPTS = [*sorted((ROOT / "experiments").glob("*.py")), *sorted((ROOT / "launch").glob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EVAL = re.compile(r'^eval "\$\((.*)\)"$')
_SHELL = re.compile(
    r"^ *(?:Command: +|on one machine: )?((?:realm|python|cp|mkdir) (?:\\\n|.)*)", re.MULTILINE
)


def page_commands(page: Path) -> list[str]:
    """Returns the lines of all fenced blocks without a language; joins continued lines."""
    blocks = [text for language, text in _BLOCK.findall(page.read_text()) if not language]
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


def python_blocks(page: Path) -> list[str]:
    """Returns the fenced Python blocks."""
    return [text for language, text in _BLOCK.findall(page.read_text()) if language == "python"]


def split(command: str) -> list[str]:
    """Splits a command as a shell does.

    `eval "$(COMMAND)"` becomes the words of COMMAND, and `.venv/bin/realm` becomes `realm`.
    """
    inner = _EVAL.match(command)
    found = shlex.split(inner[1] if inner else command, comments=True)
    return [found[0].removeprefix(".venv/bin/"), *found[1:]]


def help_commands() -> list[str]:
    """Returns the example commands in the `--help` texts."""
    modules = [import_module(f"realm_jax.cli.{verb.module}") for verb in VERBS.values()]
    modules.append(import_module("realm_jax.cli.corpus_changes"))
    return [v for m in modules for name, v in vars(m).items() if name.startswith("EXAMPLE")]


def experiment_commands() -> list[str]:
    """Returns the commands in the docstrings of all experiment and launch scripts."""
    return [command for script in SCRIPTS for command in script_commands(script)]


def script_commands(script: Path) -> list[str]:
    """Returns the commands in a script's docstring; joins continued lines."""
    docstring = script.read_text().split('"""')[1]
    return [re.sub(r"\s*\\\n\s*", " ", command) for command in _SHELL.findall(docstring)]
