"""`realm` in this process, and a run folder that looks finished."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

from realm_jax.cli.main import main


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The one JSON object that `--json` promises as the last line."""
        assert self.code in (0, 1, 75), self.err
        return json.loads(self.out.splitlines()[-1])

    def refused(self, *words: object, code: int = 1) -> None:
        """It was a sentence for people that named all of `words`, and nothing for programs."""
        assert self.code == code, (self.code, self.err)
        assert not self.out
        assert "Traceback" not in self.err
        for word in words:
            assert str(word) in self.err, f"{word} is not in:\n{self.err}"


@pytest.fixture
def realm(capsys):
    """Runs one command and says what it printed and how it ended."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture
def notes(tmp_path):
    """Three small texts."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("Rome", "Oslo", "Lima"):
        text = f"{name} is a city. It was Founded in 1535. The Mayor of {name} lives there.\n" * 8
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def vocabulary(tiny):
    """A vocabulary file."""
    return tiny.folder.parent / "vocab.txt"


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tiny):
    """A finished run with random weights; tests only read it."""
    workdir = tmp_path_factory.mktemp("finished") / "run"
    config = tiny_config(tiny.folder, stages__realm__steps=4, stages__qa__steps=4)
    return write_finished_run(workdir, tiny, config)


@pytest.fixture(scope="session")
def untuned(tmp_path_factory, tiny):
    """A finished run that was never fine-tuned; tests only read it."""
    workdir = tmp_path_factory.mktemp("untuned") / "run"
    return write_finished_run(workdir, tiny, tiny_config(tiny.folder), tuned=False)


@pytest.fixture(scope="session")
def config_file(tmp_path_factory, tiny):
    """An experiment file for the made-up land."""
    path = tmp_path_factory.mktemp("experiment") / "tiny.py"
    path.write_text(
        f"""
from support.tiny_corpus import tiny_config


def get_config():
    return tiny_config({str(tiny.folder)!r}, stages__ict__steps=2, stages__realm__steps=4)
"""
    )
    return path
