"""Runs `realm` in this process, and provides a finished run folder."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.finished_run import write_finished_run
from support.other_formats import state_dict, write_hugging_face_folder
from support.tiny_corpus import tiny_config

from realm_jax.cli.main import main
from realm_jax.storage.layout import RunDir


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Returns the JSON object that `--json` prints as the last line."""
        assert self.code in (0, 1, 75), self.err
        return json.loads(self.out.splitlines()[-1])

    def refused(self, *texts: object, code: int = 1) -> None:
        """Asserts an exit code, an error message that contains all of `texts`, and no stdout."""
        assert self.code == code, (self.code, self.err)
        assert not self.out
        assert "Traceback" not in self.err
        for text in texts:
            assert str(text) in self.err, f"{text} is not in:\n{self.err}"


@pytest.fixture
def realm(capsys):
    """Runs one command and returns its exit code and output."""

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
    """A folder with three short text files."""
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


@pytest.fixture
def theirs(tmp_path):
    """Writes random weights of a kind as another library does, and returns their folder."""

    def write(kind: str, **description: object) -> Path:
        return write_hugging_face_folder(
            tmp_path / f"their-{kind}", state_dict(kind), **description
        )

    return write


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
    """A config file for the tiny corpus."""
    path = tmp_path_factory.mktemp("experiment") / "tiny.py"
    path.write_text(
        f"""
from support.other_formats import state_dict, write_hugging_face_folder
from support.tiny_corpus import tiny_config


def get_config():
    return tiny_config({str(tiny.folder)!r}, stages__ict__steps=2, stages__realm__steps=4)
"""
    )
    return path


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run that a test may change."""
    shutil.copytree(finished.workdir, tmp_path / "run")
    return RunDir(tmp_path / "run")


@pytest.fixture
def build(realm, tmp_path, vocabulary):
    """Builds a corpus in `tmp_path/out` and returns the result of the command."""

    def run(input, *, format="text", vocab=vocabulary, out=tmp_path / "out", **flags):
        more = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        vocab = [] if vocab is None else [f"--vocab={vocab}"]
        return realm(
            "corpus",
            "build",
            f"--format={format}",
            f"--input={input}",
            f"--out={out}",
            *vocab,
            *more,
        )

    return run


@pytest.fixture
def weights(tmp_path, vocabulary):
    """A folder of weights with a tokenizer.json instead of a vocab.txt."""
    pieces = {piece: i for i, piece in enumerate(vocabulary.read_text().splitlines())}
    (tmp_path / "weights").mkdir()
    tokenizer = json.dumps({"model": {"type": "WordPiece", "vocab": pieces}})
    (tmp_path / "weights" / "tokenizer.json").write_text(tokenizer)
    return tmp_path / "weights"
