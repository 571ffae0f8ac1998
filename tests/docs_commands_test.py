"""Every command that README, docs, `--help` and experiments show: run, or at least understood.

A command of no class fails: put it into `RUN` or into `PARSED`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import documents
import numpy as np
import pytest

from realm_jax import config as config_lib
from realm_jax.cli.main import main, make_parser
from realm_jax.testing.processes import Command, environment

# beginning of a command -> what a test adds so that it takes no time
RUN = {
    "realm ask": [],
    "realm check": [],
    "realm completion": [],
    "realm corpus build --format=text": [],
    "realm corpus inspect": [],
    "realm doctor": [],
    "realm export --workdir": [],
    "realm index": ["--dry-run"],
    "realm run --config=experiments/own_corpus.py --config.corpus.knowledge": [
        "--dry-run",
        "--workdir=runs/new",
    ],
    "realm report": [],
    "realm status": [],
    "realm tag annotate --corpus=runs/notes": ["--dry-run"],
}
# beginning of a command -> why it is only parsed, with its flags, its config and its config keys
PARSED = {
    "realm compile": "minutes, and needs libtpu; tests/rehearsal",
    "realm corpus build --format=cc_news": "needs a corpus that users bring",
    "realm corpus build --format=wikiextractor": "needs a corpus that users bring",
    "realm demo": "minutes; tests/demo_test.py",
    "realm eval": "needs questions that users bring; tests/cli/finished_run_verbs_test.py",
    "realm finetune": "needs questions that users bring; tests/cli/finished_run_verbs_test.py",
    "realm import": "needs weights that users bring; tests/cli/weights_verbs_test.py",
    "realm plan": "needs compile reports of each chip; tests/rehearsal",
    "realm run": "hours; tests/cli/two_processes_test.py",
    "realm serve": "until it is stopped; tests/cli/serve_verb_test.py",
    "realm tag annotate": "needs a corpus that users bring; tests/cli/tag_verb_test.py",
    "realm tag eval": "needs a file that users bring; tests/cli/tag_verb_test.py",
    "realm tag train": "needs a file that users bring; tests/cli/tag_verb_test.py",
    "realm train": "hours; tests/cli/two_processes_test.py",
}
# corpora that a page speaks of and does not build
CORPORA = {"commands.md": ["runs/notes"], "corpora.md": ["runs/wiki"]}
# what makes a run of experiments/own_corpus.py a matter of seconds
SMALL = {
    "model.layers": 1,
    "model.hidden": 32,
    "model.mlp": 64,
    "model.embedding": 16,
    "lengths.passage": 96,
    "lengths.joint": 128,
    "stages.ict.steps": 4,
    "stages.reader.steps": 4,
    "stages.realm.steps": 4,
    "refresh.every": 2,
    "search.kind": "exact",
    "evaluation.queries": 4,
}
SHOWN = [(page, command) for page in documents.PAGES for command in documents.commands(page)]
OTHERS = documents.of_helps() + documents.of_experiments()


def test_there_are_commands_to_look_at():
    assert len(SHOWN) > 20 and len(OTHERS) > 15
    assert {page.name for page, _ in SHOWN} >= {"README.md", "own_corpus.md", "commands.md"}


@pytest.mark.parametrize("command", dict.fromkeys([c for _, c in SHOWN] + OTHERS))
def test_a_command_is_understood(command, monkeypatch):
    monkeypatch.chdir(documents.ROOT)
    words = documents.words(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", Path("Makefile").read_text(), re.MULTILINE)
    elif words[:2] == ["pip", "install"]:
        extras = re.findall(r"\[([\w,]+)\]", command)
        assert extras and all(f'"{one}":' in Path("setup.py").read_text() for one in extras)
    elif words[0] == "python":
        assert Path(words[1]).is_file()
        done = subprocess.run(
            [sys.executable, words[1], "--help"], capture_output=True, check=False
        )
        flags = [word.partition("=")[0] for word in words[2:] if not word.startswith("--config.")]
        assert done.returncode == 0 and all(flag.encode() in done.stdout for flag in flags)
    else:
        assert words[0] == "realm", "a command of no class"
        assert any(f"{command_of(words)} ".startswith(f"{begin}") for begin in {**RUN, **PARSED})
        _understood(words[1:])


def command_of(words):
    return " ".join(words)


def _understood(words):
    """By the parser itself; a config is there, and has the keys that are set."""
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
    """What a user's clone holds, some text, and a run that looks finished."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("docs", "experiments"):
        (folder / name).symlink_to(documents.ROOT / name)
    (folder / "finished").symlink_to(documented_run)
    (folder / "notes").mkdir()
    for city in ("Rome", "Oslo", "Lima"):
        text = f"{city} is a city. It was Founded in 1535 by Romulus. " * 9
        (folder / f"notes/{city}.txt").write_text(text)
    return folder


@pytest.fixture
def user(clone, tmp_path, monkeypatch):
    """A folder of its own with the same content, to type commands in."""
    for name in ("docs", "experiments", "notes"):
        (tmp_path / name).symlink_to(clone / name)
    (tmp_path / "runs").mkdir()
    for name in ("demo", "mine"):
        (tmp_path / "runs" / name).symlink_to(clone / "finished")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _class(command):
    """What to add to run it, or None."""
    text = command_of(documents.words(command))
    known = sorted((begin for begin in {**RUN, **PARSED} if text.startswith(begin)), key=len)
    return RUN.get(known[-1]) if known else None


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _ in SHOWN), ids=lambda p: p.name)
def test_the_commands_of_a_page_run_in_order(page, user, tiny, capsys):
    for name in CORPORA.get(page.name, ()):
        (user / name).symlink_to(tiny.folder)
    built = set()
    for command in documents.commands(page):
        more = _class(command)
        words = documents.words(command)
        if more is None or command in built:  # a page may repeat a command that builds
            continue
        built |= {command} if words[1:3] == ["corpus", "build"] else set()
        assert main([*words[1:], *(flag for flag in more if flag not in words)]) == 0, command
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_three_commands_on_ones_own_text(clone, tmp_path, monkeypatch, capsys):
    """The first block of docs/own_corpus.md as it stands, but for sizes and steps."""
    for name in ("docs", "experiments"):
        (tmp_path / name).symlink_to(clone / name)
    monkeypatch.chdir(tmp_path)
    build, run, ask = documents.commands(documents.ROOT / "docs/own_corpus.md")[:3]
    assert main(documents.words(build)[1:]) == 0
    settings = environment(tmp_path / "compiled")
    small = [f"--config.{key}={value}" for key, value in SMALL.items()]
    Command(tmp_path, settings, *documents.words(run)[1:], *small).wait(0)
    capsys.readouterr()
    assert main([*documents.words(ask)[1:], "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["answer"] and len(report["passages"]) > 1
    assert {passage["title"] for passage in report["passages"][1:]} <= {
        page.stem for page in documents.PAGES
    }


def test_links_of_the_readme_lead_somewhere():
    """Those of docs/ are looked at when the site is built."""
    targets = re.findall(r"\]\(([^)#]+)\)", (documents.ROOT / "README.md").read_text())
    inside = [target for target in targets if "://" not in target]
    assert len(inside) > 3
    assert [target for target in inside if not (documents.ROOT / target).exists()] == []


def test_python_on_a_page_runs(user):
    for block in documents.python_blocks(documents.ROOT / "docs/python.md"):
        exec(compile(block, "docs/python.md", "exec"), {})


def test_python_in_the_readme_runs(user):
    import realm_jax

    assert main(["export", "--workdir=runs/demo", "--to=weights/bert"]) == 0
    shape = (2, 12)
    ids = np.ones(shape, np.int32)
    given = {"realm_jax": realm_jax, "ids": ids, "mask": ids, "segment_ids": 0 * ids}
    given["positions"] = np.zeros((2, 1), np.int32)
    for block in documents.python_blocks(documents.ROOT / "README.md"):
        exec(compile(block, "README.md", "exec"), given)
    assert given["model"].embed(ids, ids, 0 * ids).shape == (2, 8)
