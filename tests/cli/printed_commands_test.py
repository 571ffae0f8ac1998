"""Commands that messages name can be pasted into a shell, also if paths have blanks."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import realm_jax
from realm_jax.corpus.store import PassageStore

SOURCES = sorted(Path(realm_jax.__file__).parent.rglob("*.py"))
COMMAND = re.compile(r"\brealm [a-z]+( [a-z-]+)* ?(-|\S*=)?[^`:]*$")
# Values of ours, without blanks: names of programs, topologies, and parts of a command.
SAFE = {"query", "worker", "name", "target.name", "report['topology']", "command", "quoted"}


def interpolated(tree):
    """The expressions that f-strings insert after the beginning of a command of `realm`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += part.value
                continue
            if COMMAND.search(before.rpartition("\n")[2].rpartition(";")[2]):
                yield part
            before += "x"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_paths_in_printed_commands_are_quoted(path):
    for part in interpolated(ast.parse(path.read_text("utf-8"))):
        text = ast.unparse(part.value)
        assert text.startswith("shlex.") or text in SAFE, f"{path}:{part.lineno}: {{{text}}}"


@pytest.mark.parametrize(
    ("name", "content", "flags"),
    [
        ("a.jsonl", '{"key": "1", "body": "The river is long."}', ["--columns=text=body,id=key"]),
        ("a.txt", "hlavní město České republiky".encode("cp1250"), ["--encoding=cp1250"]),
    ],
)
def test_the_command_that_adds_to_an_existing_corpus_has_all_flags(
    realm, tmp_path, monkeypatch, name, content, flags
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my notes"
    folder.mkdir()
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    kind = "jsonl" if name.endswith("jsonl") else "text"
    build = ["corpus", "build", f"--format={kind}", f"--input={folder}", "--out=a corpus", *flags]
    assert realm(*build).code == 0
    before = PassageStore.open("a corpus")
    text, error = before.body(0), realm(*build)
    assert error.code != 0
    named = error.err.partition("to add documents to it: ")[2].splitlines()[0]
    assert realm(*shlex.split(named)[1:]).code == 0
    after = PassageStore.open("a corpus")
    assert (after.passages(), after.body(0)) == (1, text)
