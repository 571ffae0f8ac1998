"""The commands and the code that README, docs, helps and experiments show to people."""

import re
import shlex
from importlib import import_module
from pathlib import Path

from realm_jax.cli.main import VERBS

ROOT = Path(__file__).parents[1]
SCRIPTS = [*sorted((ROOT / "experiments").glob("*.py")), *sorted((ROOT / "launch").glob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IN_SHELL = re.compile(r'^eval "\$\((.*)\)"$')
_SHELL = re.compile(
    r"^ *(?:Command: +|on one machine: )?((?:realm|python|cp|mkdir) (?:\\\n|.)*)", re.MULTILINE
)


def commands(page: Path) -> list[str]:
    """Of the fenced blocks that name no language, without their comments; lines joined."""
    blocks = [text for language, text in _BLOCK.findall(page.read_text()) if not language]
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


def python_blocks(page: Path) -> list[str]:
    """The fenced blocks of Python."""
    return [text for language, text in _BLOCK.findall(page.read_text()) if language == "python"]


def words(command: str) -> list[str]:
    """As a shell splits it; `eval "$(…)"` is what is in it, and `.venv/bin/realm` is `realm`."""
    inner = _IN_SHELL.match(command)
    found = shlex.split(inner[1] if inner else command, comments=True)
    return [found[0].removeprefix(".venv/bin/"), *found[1:]]


def of_helps() -> list[str]:
    """The examples that `--help` shows."""
    modules = [import_module(f"realm_jax.cli.{verb.module}") for verb in VERBS.values()]
    return [v for m in modules for name, v in vars(m).items() if name.startswith("EXAMPLE")]


def of_experiments() -> list[str]:
    """The commands at the head of each experiment and launch script."""
    return [command for script in SCRIPTS for command in of_script(script)]


def of_script(script: Path) -> list[str]:
    """The commands at its head, lines joined."""
    head = script.read_text().split('"""')[1]
    return [re.sub(r"\s*\\\n\s*", " ", command) for command in _SHELL.findall(head)]
