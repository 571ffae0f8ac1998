"""What differs between machines: owners, folders, streams, encodings, variables, full places.

Each part has the kind of report that it is modelled on, and its neighbours.
"""

import errno
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import environment
from support.tiny_corpus import tiny_config

from realm_jax.cli import exit_codes
from realm_jax.cli.jobs import builder_command
from realm_jax.inference.prediction_file import PredictionFile
from realm_jax.retrieval.search_process import SearchProcess
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.layout import path_of

QUESTION = "What is the capital of Ora?"
# The installed script, whose folder is the first entry of sys.path.
SCRIPT = """
import sys
from realm_jax.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
TRAPS = ("random", "socket", "pickle", "queue", "tokenize", "numpy", "jax", "realm_jax", "secrets")
TRAP = "raise SystemExit('imported from the current folder: ' + __name__)\n"


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "What is the capital of Ora?", "answers": ["Ino0"]}\n')
    return path


@pytest.fixture
def traps(tmp_path, monkeypatch):
    """A folder with modules that must not be imported."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # set by `realm` in this process
    folder = tmp_path / "traps"
    folder.mkdir()
    for name in TRAPS:
        (folder / f"{name}.py").write_text(TRAP)
    return folder


@pytest.fixture
def script(tmp_path):
    """Runs `realm` as its installed script does, in another process."""
    path = tmp_path / "bin" / "realm"
    path.parent.mkdir()
    path.write_text(SCRIPT)

    def run(*arguments, shell="", **options):
        settings = {**environment(tmp_path), **options.pop("env", {})}
        command = [sys.executable, path, *arguments]
        if shell:
            command = ["bash", "-c", f'"$@" {shell}', "bash", *command]
        return subprocess.run(
            command, env=settings, capture_output=True, check=False, timeout=300, **options
        )

    return run


# --- owner without a name


def test_no_verb_needs_the_name_of_an_owner(realm, copied, questions, monkeypatch):
    def no_name(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", no_name)
    workdir = f"--workdir={copied.workdir}"
    for command in (
        ["ask", workdir, QUESTION],
        ["check", copied.workdir],
        ["status", workdir],
        ["run", workdir, "--dry-run"],
        ["eval", workdir, f"--questions={questions}"],
    ):
        result = realm(*command)
        assert result.code == 0, result.err


# --- files of the current folder


def test_workers_of_a_build_import_nothing_from_the_current_folder(script, traps, notes, tmp_path):
    command = ["corpus", "build", "--format=text", f"--input={notes}", "--workers=2"]
    done = script(*command, f"--out={tmp_path / 'out'}", cwd=traps)
    assert done.returncode == 0, done.stderr.decode()
    assert b"current folder" not in done.stderr


def test_the_builder_imports_nothing_from_the_current_folder(copied, traps, tmp_path):
    command = [*builder_command(str(copied.workdir), tiny_config()), "--dry-run"]
    settings = environment(tmp_path)
    done = subprocess.run(
        command, cwd=traps, env=settings, capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_search_process_imports_nothing_from_the_current_folder(traps, tmp_path, monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    build_searcher("scann", vectors, tiny_config().search).save(tmp_path)
    monkeypatch.chdir(traps)
    found = SearchProcess(tmp_path)
    assert found.size == len(vectors)


# --- encodings and streams


@pytest.mark.parametrize(
    ("shell", "settings"),
    [
        ("| head -c 1", {}),
        (">&-", {}),
        ("2>&-", {}),
        (">&- 2>&- <&-", {}),
        ("", {"PYTHONIOENCODING": "ascii"}),
        ("", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    ],
)
def test_no_stream_gives_a_traceback(script, finished, shell, settings):
    verb = ["status", f"--workdir={finished.workdir}", "--json"]
    done = script(*verb, shell=shell, env=settings)
    assert b"Traceback" not in done.stderr + done.stdout, done.stderr.decode()
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == 0, done.stderr.decode()


def test_a_reader_that_has_gone_is_told_by_the_exit_code(script, finished):
    verb = ["status", f"--workdir={finished.workdir}", "--json"]
    done = script(*verb, shell="| true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (exit_codes.READER_GONE, b"")


def test_json_is_valid_in_an_encoding_without_all_characters(script, tmp_path):
    done = script("check", tmp_path / "Zürich", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert "Zürich" in json.dumps(json.loads(done.stdout), ensure_ascii=False)


def test_bytes_of_another_encoding_are_refused_as_a_question(realm, finished):
    latin = os.fsdecode(b"Z\xfcrich?")
    result = realm("ask", f"--workdir={finished.workdir}", latin)
    result.refused("expected UTF-8", "Z\\xfcrich", code=2)


@pytest.mark.parametrize("verb", ["ask", "check", "status", "report"])
def test_a_workdir_in_another_encoding_is_named_as_that(realm, tmp_path, verb):
    folder = f"{tmp_path}/{os.fsdecode(b'Z' + bytes([252]) + b'rich')}"
    rest = [QUESTION] if verb == "ask" else []
    given = folder if verb == "check" else f"--workdir={folder}"
    realm(verb, given, *rest).refused("the path is not UTF-8", "\\udcfcrich", "rename")


@pytest.mark.parametrize(
    "variable", ["JAX_ENABLE_X64=maybe", "JAX_DEFAULT_MATMUL_PRECISION=none", "JAX_LOG_COMPILES=so"]
)
def test_a_variable_that_jax_refuses_is_named(script, finished, variable):
    name, value = variable.split("=")
    workdir = f"--workdir={finished.workdir}"
    done = script("run", workdir, "--dry-run", env={name: value})
    message = done.stderr.decode()
    assert done.returncode == 1
    assert "Traceback" not in message
    assert f"unset {name}" in message, message


NO_GUARD = """
import sys
from realm_jax.corpus.build import build

build("text", sys.argv[1], sys.argv[2], sys.argv[3], workers=2)
"""


def test_a_script_without_a_guard_is_told_so(notes, vocabulary, tmp_path):
    program = tmp_path / "mine.py"
    program.write_text(NO_GUARD)
    command = [sys.executable, program, notes, tmp_path / "out", vocabulary]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    last = done.stderr.strip().splitlines()
    assert done.returncode == 1
    assert any('if __name__ == "__main__":' in line for line in last), done.stderr
    assert "memory" not in done.stderr
    assert done.stderr.count("Traceback") <= 2  # of the user's script: the error and its cause


# --- read-only and full places


def test_predictions_that_cannot_be_written_are_refused_before_the_evaluation(
    realm, copied, questions, tmp_path
):
    command = ["eval", f"--workdir={copied.workdir}", f"--questions={questions}"]
    for place in (tmp_path, questions / "p.jsonl"):
        result = realm(*command, f"--predictions={place}")
        result.refused("predictions cannot be written", place, "--predictions=FILE")
        assert "exact match" not in result.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_does_not_lose_the_scores(realm, copied, questions):
    command = ["eval", f"--workdir={copied.workdir}", f"--questions={questions}"]
    result = realm(*command, "--predictions=/dev/full", "--json")
    assert result.code == 1
    assert result.json()["questions"] == 1
    assert result.err.index("exact match") < result.err.index("/dev/full is incomplete")


def test_predictions_are_in_the_file_while_the_evaluation_runs(tmp_path):
    path = path_of(tmp_path / "p.jsonl")
    with PredictionFile.open(path) as predictions:
        predictions.write([{"n": 1}])
        assert path.read_text() == '{"n": 1}\n'
        predictions.write([{"n": 2}])
    assert [one["n"] for one in predictions.read()] == [1, 2]
    assert predictions.error is None
    with PredictionFile.open(path_of("/dev/full")) as full:
        full.write([{"n": 1}])
    assert full.error is not None and full.error.errno == errno.ENOSPC


# --- words of users


@pytest.mark.parametrize("blank", ["[mask]", "<mask>", "[Mask]", "<MASK>"])
def test_other_spellings_of_the_blank_are_understood(realm, finished, blank):
    command = ["ask", f"--workdir={finished.workdir}", "--json", "--answer=ube"]
    found = [realm(*command, f"The capital of Ora is {one}.").json() for one in (blank, "[MASK]")]
    assert found[0]["probability"] == found[1]["probability"]


def test_a_home_folder_inside_a_flag_is_expanded(realm, finished, monkeypatch):
    monkeypatch.setenv("HOME", str(finished.root.parent))
    name = finished.root.name
    assert realm("status", f"--workdir=~/{name}").code == 0
    assert realm("check", f"~/{name}").code == 0
    assert realm("ask", f"--workdir=~/{name}", QUESTION).code == 0


def test_a_build_into_the_current_folder(realm, notes, tmp_path, monkeypatch):
    monkeypatch.chdir(notes)
    command = ["corpus", "build", "--format=text", "--input=*.txt", "--out=."]
    realm(*command).refused("holds other files", "Lima.txt", "--out=corpus")
    assert sorted(path.name for path in notes.iterdir()) == ["Lima.txt", "Oslo.txt", "Rome.txt"]
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    command[3] = f"--input={notes}"
    result = realm(*command)
    assert result.code == 0, result.err
    assert (tmp_path / "empty.vocab.txt").exists()
