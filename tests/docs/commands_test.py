"""Every command in README, docs, `--help` and experiments parses; the quick ones also run.

`every_command_test` (slow) runs all of them.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import documented_commands as documented
import numpy as np
import pytest

from realm_jax import config as config_lib
from realm_jax.cli.main import main, make_parser

# prefix of a quick command -> flags that the test adds
QUICK = {
    "realm ask": [],
    "realm check": [],
    "realm completion": [],
    "realm corpus build --format=text": [],
    "realm corpus inspect": [],
    "realm doctor": [],
    "realm export --workdir": [],
    "realm index": ["--dry-run"],
    "realm run --config=own_corpus --config.corpus.knowledge": [
        "--dry-run",
        "--workdir=runs/new",
    ],
    "realm report": [],
    "realm status": [],
    "realm tag annotate --corpus=runs/my_notes": ["--dry-run"],
}
# a flag that names an encoder that is not here -> its replacement
LOCAL = {
    f"--vocab={encoder}": "--vocab=weights/bert/vocab.txt"
    for encoder in ("sentence-transformers/all-MiniLM-L6-v2", "weights/minilm")
}
# corpora that a page uses but does not build
CORPORA = {
    "commands.md": ["runs/my_notes"],
    "bring_a_corpus.md": ["runs/wiki"],
    "evaluate_retrieval.md": ["runs/documents"],
}
SHOWN = [(page, command) for page in documented.PAGES for command in documented.page_commands(page)]
OTHERS = documented.help_commands() + documented.experiment_commands()


def test_commands_are_found():
    assert len(SHOWN) > 20 and len(OTHERS) > 15
    assert {page.name for page, _ in SHOWN} >= {"README.md", "own_corpus.md", "commands.md"}


@pytest.mark.parametrize("command", dict.fromkeys([c for _, c in SHOWN] + OTHERS))
def test_a_documented_command_parses(command, monkeypatch):
    monkeypatch.chdir(documented.ROOT)
    words = documented.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", Path("Makefile").read_text(), re.MULTILINE)
    elif words[:2] == ["pip", "install"]:
        extras = ",".join(re.findall(r"\[([\w,]+)\]", command)).split(",")
        assert extras and all(f'"{one}":' in Path("setup.py").read_text() for one in extras)
    elif words[0] == "python":
        assert Path(words[1]).is_file()
        done = subprocess.run(
            [sys.executable, words[1], "--help"], capture_output=True, check=False
        )
        flags = [word.partition("=")[0] for word in words[2:] if not word.startswith("--config.")]
        assert done.returncode == 0 and all(flag.encode() in done.stdout for flag in flags)
    elif words[0] not in ("cp", "mkdir"):
        assert words[0] == "realm", "unknown program"
        _assert_parses(words[1:])


def _assert_parses(words):
    """Checks verb and flags, that the config exists, and that it has the keys that are set."""
    if not words:
        return
    parsed, rest = make_parser(words)[0].parse_known_args(words)
    assert not rest or "overridable" in parsed, rest
    config = config_lib.load(getattr(parsed, "config", None))
    for word in rest:
        key, equals, _ = word.removeprefix("--config.").partition("=")
        assert equals and key in config_lib.keys(config), word


@pytest.fixture(scope="session")
def clone(tmp_path_factory, documented_run):
    """A folder with docs, experiments, some text, and a finished run."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("docs", "experiments"):
        (folder / name).symlink_to(documented.ROOT / name)
    (folder / "finished").symlink_to(documented_run)
    (folder / "notes").mkdir()
    for city in ("Rome", "Oslo", "Lima"):
        text = f"{city} is a city. It was Founded in 1535 by Romulus. " * 9
        (folder / f"notes/{city}.txt").write_text(text)
    return folder


@pytest.fixture
def user_folder(clone, tiny, tmp_path, monkeypatch):
    """The working directory of a test, with the content of `clone`."""
    for name in ("docs", "experiments", "notes"):
        (tmp_path / name).symlink_to(clone / name)
    (tmp_path / "runs").mkdir()
    for name in ("demo", "mine", "my_run", "from_bert", "as_is"):
        (tmp_path / "runs" / name).symlink_to(clone / "finished")
    (tmp_path / "weights/bert").mkdir(parents=True)
    shutil.copyfile(tiny.folder.parent / "vocab.txt", tmp_path / "weights/bert/vocab.txt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _added_flags(command):
    """Returns the flags to add to a quick command, or None if the command is not quick."""
    text = " ".join(documented.split(command))
    prefixes = sorted((prefix for prefix in QUICK if text.startswith(prefix)), key=len)
    return QUICK[prefixes[-1]] if prefixes else None


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _ in SHOWN), ids=lambda p: p.name)
def test_the_commands_of_a_page_run_in_order(page, user_folder, tiny, capsys):
    for name in CORPORA.get(page.name, ()):
        (user_folder / name).symlink_to(tiny.folder)
    for command in documented.page_commands(page):
        added = _added_flags(command)
        words = [LOCAL.get(word, word) for word in documented.split(command)]
        if added is None:
            continue
        assert main([*words[1:], *(flag for flag in added if flag not in words)]) == 0, command
        assert "Traceback" not in capsys.readouterr().err


def test_local_links_in_the_readme_exist():
    """The site build checks the links in docs/."""
    targets = re.findall(r"\]\(([^)#]+)\)", (documented.ROOT / "README.md").read_text())
    local = [target for target in targets if "://" not in target]
    assert len(local) > 3
    assert [target for target in local if not (documented.ROOT / target).exists()] == []


def test_python_blocks_in_the_docs_run(user_folder):
    for block in documented.python_blocks(documented.ROOT / "docs/how_to/use_from_python.md"):
        exec(compile(block, "docs/how_to/use_from_python.md", "exec"), {})


def test_python_blocks_in_the_readme_run(user_folder):
    for block in documented.python_blocks(documented.ROOT / "README.md"):
        exec(compile(block, "README.md", "exec"), {})


def test_python_on_the_weights_page_runs(user_folder):
    shutil.rmtree("weights")
    assert main(["export", "--workdir=runs/demo", "--to=weights/bert"]) == 0
    shape = (2, 12)
    ids = np.ones(shape, np.int32)
    names = {
        "ids": ids,
        "mask": ids,
        "segment_ids": 0 * ids,
        "positions": np.zeros((2, 1), np.int32),
    }
    page = documented.ROOT / "docs/how_to/import_and_export_weights.md"
    for block in documented.python_blocks(page):
        exec(compile(block, page.name, "exec"), names)
    assert names["model"].embed(ids, ids, 0 * ids).shape == (2, 8)
