"""User mistakes: each gets a helpful message and an exit code, and no traceback."""

import os
import shlex
import subprocess

import pytest
from support.other_formats import write_unusable_weights
from support.processes import RealmProcess, environment

from realm_jax.cli import extras
from realm_jax.runtime import realm_command

ASK = "ask --workdir={run}"
BUILD = "corpus build --format=text --input={notes} --out={new}"
QUESTIONS = "--questions={file}"
UNREADABLE = ["cannot be read on this machine", "abc://b/run", "abc"]
JSON_LINES = '{"question": "Who?", "answers": ["me"]}\n{"question": "Who?"\n'

# mistake -> (command, exit code, texts in the error message)
MISTAKES = {
    "a verb that is none": ("asks", 2, ["invalid choice: 'asks'", "'ask'", "--help"]),
    "no verb": ("", 2, ["VERB", "--help"]),
    "a flag that is none": (f"{ASK} --depth=3 Who?", 2, ["--depth=3", "ask --help"]),
    "a needed flag left out": ("ask Who?", 2, ["--workdir"]),
    "no question": (ASK, 2, ["question"]),
    "two flags of input": (
        f"{BUILD} --input={{file}}",
        2,
        ["--input", "given twice", "{file}", "quoted glob"],
    ),
    "two files of questions": (
        "eval --workdir={run} --questions={file} --questions={notes}",
        2,
        ["--questions", "given twice", "{notes}", "quoted glob"],
    ),
    "a corpus on an object store": (
        "corpus build --format=text --input={notes} --out=s3://bucket/corpus",
        2,
        ["--out", "local disk", "s3://bucket/corpus", "run folders"],
    ),
    "a corpus to change on an object store": (
        "corpus compact s3://bucket/corpus",
        2,
        ["local disk", "s3://bucket/corpus"],
    ),
    "an export to an object store": (
        "export --workdir={run} --to=s3://bucket/weights",
        2,
        ["--to", "local disk", "s3://bucket/weights"],
    ),
    "no passages wanted": (f"{ASK} --k=0 Who?", 2, ["--k", "at least 1", "'0'"]),
    "a run folder that is none": (
        "ask --workdir={new} Who?",
        1,
        ["no trained networks to answer with", "{new}", "realm run"],
    ),
    "a mistyped address to ask": ("ask --workdir=abc://b/run Who?", 1, UNREADABLE),
    "a mistyped address to train in": (
        "train --config={config} --workdir=abc://b/run",
        1,
        UNREADABLE,
    ),
    "a mistyped address to index": ("index --workdir=abc://b/run", 1, UNREADABLE),
    "a mistyped address to check": ("check abc://b/run", 1, UNREADABLE),
    "a mistyped address to repair": ("check abc://b/run --repair", 1, UNREADABLE),
    "a demo on an object store": ("demo --workdir=s3://b/demo", 1, ["s3://b/demo", "local"]),
    "a file for a run folder": (
        "ask --workdir={file} Who?",
        1,
        ["no trained networks to answer with"],
    ),
    "an empty question": (f"{ASK} ''", 1, ["question is empty"]),
    "a question of 10,000 words": (f"{ASK} '{'why ' * 10_000}'", 1, ["too long", "40000"]),
    "two blanks": (f"{ASK} '[MASK] is [MASK].'", 1, ["one [MASK]", "found:    2"]),
    "a question to a run that only fills blanks": (
        "ask --workdir={untuned} Who?",
        1,
        ["not fine-tuned", "realm finetune"],
    ),
    "a workdir of another model": (
        "run --config={config} --workdir={run} --config.model.hidden=32",
        1,
        ["another model", "--workdir"],
    ),
    "a config file that is not there": (
        "run --config=experiments/none.py --workdir={new}",
        1,
        ["no such config file or recipe", "wiki_sample"],
    ),
    "a typo in a config key": (
        "run --config={config} --workdir={new} --config.stages.realm.stepz=3",
        1,
        ["stages.realm.stepz", "did you mean 'stages.realm.steps'"],
    ),
    "a negative batch": (
        "train --config={config} --workdir={new} --config.stages.ict.batch=-1",
        1,
        ["config.stages.ict.batch", "at least 1", "-1"],
    ),
    "two processes that cannot find each other": (
        "train --config={config} --workdir={new} --processes=2",
        2,
        ["--coordinator", "HOST:PORT"],
    ),
    "the second process of one": (
        "train --config={config} --workdir={new} --process=1",
        2,
        ["--coordinator", "HOST:PORT"],
    ),
    "numbers of processes beside auto": (
        "train --config={config} --workdir={new} --coordinator=auto --processes=2",
        2,
        ["--processes=2", "--coordinator=auto", "HOST:PORT"],
    ),
    "no devices": (
        "train --config={config} --workdir={new} --devices=0",
        2,
        ["--devices", "at least 1", "'0'"],
    ),
    "a builder with a name": (
        "index --workdir={new} --worker=a",
        2,
        ["--worker", "i/n", "'a'", "--worker=0/n"],
    ),
    "a builder whose number is too large": (
        "index --workdir={new} --worker=2/2",
        2,
        ["--worker", "0 <= i < n", "'2/2'"],
    ),
    "a builder with two kinds of numbers": (
        "index --workdir={new} --worker=0/2 --coordinator=h:1 --processes=2",
        2,
        ["--worker", "--coordinator", "leave out --worker"],
    ),
    "several builder processes without a coordinator": (
        "index --workdir={new} --processes=2",
        2,
        ["--coordinator", "HOST:PORT"],
    ),
    "no config": ("run --workdir={new}", 1, ["no config", "--config="]),
    "not a corpus folder": (
        "run --config={config} --workdir={new} --config.corpus.knowledge={notes}",
        1,
        ["no corpus in this folder", "{notes}"],
    ),
    "no text under that name": (
        "corpus build --format=text --input={new} --out={new}",
        1,
        ["no input file", "{new}"],
    ),
    "a format that is none": (
        "corpus build --format=epub --input={notes} --out={new}",
        2,
        ["--format", "'epub'", "'text'"],
    ),
    "no vocabulary there": (f"{BUILD} --vocab={{new}}.txt", 1, ["no vocabulary file", "vocab.txt"]),
    "a corpus that is there already": (
        "corpus build --format=text --input={notes} --out={corpus}",
        1,
        ["already exists", "--out"],
    ),
    "a file where a folder must be made": (
        "corpus build --format=text --input={notes} --out={file}/corpus --vocab={vocabulary}",
        1,
        ["another folder"],
    ),
    "broken JSON in line 2": (
        f"eval --workdir={{run}} {QUESTIONS}",
        1,
        ["not JSON", "{file}:2"],
    ),
    "questions of another format": (
        f"eval --workdir={{run}} {QUESTIONS} --format=squad",
        1,
        ["not JSON", "{file}"],
    ),
    "fine-tuning before pre-training": (
        f"finetune --config={{config}} --workdir={{new}} {QUESTIONS} --format=trec --part=all",
        1,
        ["{file}:1"],
    ),
    "nothing to verify": ("check {notes}", 1, ["expected", "found"]),
    "weights that are none": ("import --from={notes} --to={new}", 1, ["{notes}", "expected"]),
    "weights that keep capitals": (
        "import --from={weights}/cased --to={new}",
        1,
        ["weights are cased", "{weights}/cased", "bert-base-uncased"],
    ),
    "weights with NaN": (
        "import --from={weights}/nan --to={new}",
        1,
        ["NaN or infinity", "download the weights again"],
    ),
    "weights with a shorter vocabulary": (
        "import --from={weights}/cut_vocabulary --to={new}",
        1,
        ["another vocabulary size", "vocab.txt"],
    ),
    "weights that Git LFS left out": (
        "import --from={weights}/pointer --to={new}",
        1,
        ["Git LFS pointer", "lfs pull"],
    ),
    "weights of another architecture": (
        "import --from={weights}/roberta --to={new}",
        1,
        ["roberta", "all-MiniLM-L6-v2"],
    ),
    "weights with a module that is not known": (
        "import --from={weights}/module --to={new}",
        1,
        ["LSTM", "modules.json"],
    ),
    "an export onto something": ("export --workdir={run} --to={notes}", 1, ["{notes}"]),
    "a tagger judged on nothing": ("tag eval", 2, ["--tagger", "--input"]),
    "an answer without a blank": (
        f"{ASK} --answer=Oslo 'What is the capital of Norway?'",
        2,
        ["--answer needs a [MASK]", "leave out --answer"],
    ),
    "a number of passages for a blank": (f"{ASK} --k=3 'Oslo is [MASK].'", 2, ["--k", "leave out"]),
    "a glob without quotes": (
        "corpus build --format=text --input {file} {notes} --out={new}",
        2,
        ["expanded a glob", "--input='notes/*.txt'"],
    ),
    "a question without quotes": (f"{ASK} Who is it", 2, ["'is'", "in quotes"]),
    "a long question without quotes": (f"{ASK} Who {'x' * 300}", 2, ["in quotes"]),
    "a setting of training for a verb that reads": (
        f"{ASK} --config.model.hidden=8 Who?",
        2,
        ["config keys of paths", "corpus.knowledge"],
    ),
    "a corpus that was moved": (
        f"{ASK} --config.corpus.knowledge={{new}} Who?",
        1,
        ["no corpus in this folder", "--config.corpus.knowledge=FOLDER"],
    ),
    "predictions into a folder": (
        "eval --workdir={run} --questions={good} --predictions={notes}",
        1,
        ["predictions cannot be written", "{notes}", "--predictions=FILE"],
    ),
    "a corpus among other files": (
        "corpus build --format=text --input={notes} --out={notes}",
        1,
        ["holds other files", "Rome.txt", "--out=corpus"],
    ),
    "an empty input": (
        "corpus build --format=text --input= --out={new}",
        2,
        ["--input", "expected a value", ". is the current folder"],
    ),
    "a shell that is none": ("completion powershell", 2, ["'powershell'", "'bash'"]),
    "an address of another machine": (
        "serve --workdir={run} --host=192.0.2.1 --port=0",
        1,
        ["cannot listen on this address", "192.0.2.1"],
    ),
}


@pytest.fixture(scope="session")
def paths(tmp_path_factory, finished, untuned, tiny, config_file):
    """Paths that the commands use; `new` is never created, and nothing else changes."""
    folder = tmp_path_factory.mktemp("mistakes")
    notes, file = folder / "notes", folder / "file.jsonl"
    notes.mkdir()
    (notes / "Rome.txt").write_text("Rome is a city.")
    file.write_text(JSON_LINES)
    good = folder / "good.jsonl"
    good.write_text(JSON_LINES.splitlines()[0])
    return {
        "new": folder / "new",
        "notes": notes,
        "file": file,
        "good": good,
        "weights": write_unusable_weights(folder / "weights"),
        "run": finished.workdir,
        "untuned": untuned.workdir,
        "corpus": tiny.folder,
        "vocabulary": tiny.folder.parent / "vocab.txt",
        "config": config_file,
    }


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_an_error_message_and_no_traceback(realm, paths, mistake):
    command, code, words = MISTAKES[mistake]
    result = realm(*_words(command, paths))
    result.refused(*(word.format(**paths) for word in words), code=code)
    assert len([line for line in result.err.splitlines() if line.strip()]) <= 12
    assert not paths["new"].exists()


def _words(command, paths):
    """Splits a command as a shell does."""
    return [word.format(**paths) for word in shlex.split(command)]


def test_the_list_has_enough_mistakes():
    assert len(MISTAKES) >= 25


@pytest.mark.parametrize("verb", ["serve --workdir={run}", "completion bash"])
def test_a_missing_extra_is_named_with_its_install_command(realm, paths, monkeypatch, verb):
    monkeypatch.setattr(extras, "version_of", lambda requirement: None)
    realm(*_words(verb, paths)).refused("not installed", "pip install")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(realm, paths, tmp_path):
    tmp_path.chmod(0o500)
    command = _words(f"{BUILD} --vocab={{vocabulary}}", {**paths, "new": tmp_path / "corpus"})
    realm(*command).refused("Permission denied", "may write to")


@pytest.mark.parametrize(
    ("command", "settings", "code", "words"),
    [
        ("ask --workdir={run} Who?", {"JAX_PLATFORMS": "cuda"}, 1, ["no device", "cuda", "doctor"]),
        ("asks", {}, 2, ["'asks'"]),
    ],
)
def test_a_mistake_in_a_separate_process(paths, tmp_path, command, settings, code, words):
    done = subprocess.run(
        realm_command(*_words(command, paths)),
        env={**environment(tmp_path), **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.slow
def test_if_the_builder_dies_the_run_ends_with_the_builders_log(config_file, tmp_path):
    """Only the builder reaches this failpoint."""
    settings = {**environment(tmp_path), "REALM_FAILPOINT": "shard.embedded=kill"}
    arguments = ["run", f"--config={config_file}", f"--workdir={tmp_path / 'w'}"]
    message = RealmProcess(tmp_path, settings, *arguments).wait(1)
    for word in ("the index builder failed", "index_builder.log", "same command to resume"):
        assert word in message
