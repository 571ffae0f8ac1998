"""Writes docs/reference/config.md from the code and the comments of realm_jax/defaults.py.

Command: make config-reference
"""

import ast
import sys
from pathlib import Path

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import defaults, moved_keys

SOURCE = Path(defaults.__file__)
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config.md"
INTRODUCTION = """\
# Config reference

<!-- Generated from realm_jax/defaults.py by `make config-reference`; do not edit. -->

Set a key in a recipe (`config.stages.realm.steps = 300` in `get_config()`) or on the command line
(`--config.stages.realm.steps=300`). The defaults are the sizes and the schedule of the paper.
"""


def page() -> str:
    """The page as Markdown: one table for each section of the config.

    Raises:
      ValueError: a key has no comment.
    """
    lines = SOURCE.read_text().splitlines()
    functions = {
        node.name.removeprefix("_"): node
        for node in ast.parse("\n".join(lines)).body
        if isinstance(node, ast.FunctionDef)
    }
    config = defaults.default()
    order = _comments(functions["default"], lines)
    parts = [INTRODUCTION, _table(config, {"seed": order.pop("seed")})]
    for section in [name for name in order if name not in defaults.STAGES]:
        if section != "stages":
            parts.append(_section(config[section], section, functions[section], lines))
            continue
        shared = _comments(functions["stage"], lines)
        summary = _summary(functions["stage"])
        parts.append(f"## stages\n\n{summary}\n\n{_names('stages.NAME', shared)}")
        parts += [
            _section(config.stages[name], f"stages.{name}", functions[name], lines, shared)
            for name in defaults.STAGES
        ]
    parts.append(_moved())
    return "\n".join(parts)


def _section(
    section: ConfigDict,
    name: str,
    function: ast.FunctionDef,
    lines: list[str],
    shared: dict[str, str] | None = None,
) -> str:
    comments = (shared or {}) | _comments(function, lines)
    level = "###" if shared else "##"
    if set(comments) != set(section):
        raise ValueError(f"{SOURCE}: keys of {name} without a comment, or comments without a key")
    table = _table(section, comments, f"{name}.")
    return f"{level} {name}\n\n{_summary(function)}\n\n{table}"


def _comments(function: ast.FunctionDef, lines: list[str]) -> dict[str, str]:
    """Key -> comment, from the lines above a key and the end of its line."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            found[node.targets[0].attr] = _comment(node.lineno, lines)
        if isinstance(node, ast.Dict):
            for key in node.keys:
                assert isinstance(key, ast.Constant)
                found[str(key.value)] = _comment(key.lineno, lines)
    return found


def _comment(line: int, lines: list[str]) -> str:
    above: list[str] = []
    first = line - 2  # the line above, from 0
    while lines[first].strip().startswith("#"):
        above.insert(0, lines[first].strip().removeprefix("#").strip())
        first -= 1
    behind = lines[line - 1].partition("  # ")[2]
    return " ".join([*above, behind]).strip()


def _summary(function: ast.FunctionDef) -> str:
    text = ast.get_docstring(function)
    assert text is not None
    return text


def _names(prefix: str, comments: dict[str, str]) -> str:
    rows = "".join(f"| `{prefix}.{key}` | {_cell(text)} |\n" for key, text in comments.items())
    return f"| key | meaning |\n|---|---|\n{rows}"


def _table(section: ConfigDict, comments: dict[str, str], prefix: str = "") -> str:
    rows = []
    for key, text in comments.items():
        if not text:
            raise ValueError(f"{SOURCE}: {prefix}{key} has no comment")
        rows.append(f"| `{prefix}{key}` | `{_value(section[key])}` | {_cell(text)} |\n")
    return "| key | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    sentence = text[0].upper() + text[1:]
    return sentence.replace("|", "\\|").replace("*", "\\*").rstrip(".")


def _moved() -> str:
    rows = "".join(f"| `{old}` | `{new}` |\n" for old, new in moved_keys.MOVED_KEYS.items())
    return (
        "## Keys of earlier versions\n\n"
        "Runs, snapshots and indexes written with the old names can be read. On the command line "
        "and in recipes the old names are errors that name the new key.\n\n"
        f"| old key | key |\n|---|---|\n{rows}"
    )


def main() -> None:
    """Writes the page."""
    config_lib.assert_known(defaults.default())
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
