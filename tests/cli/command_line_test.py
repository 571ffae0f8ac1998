"""The command line: help, unknown arguments, overrides, operating-system errors."""

import argparse
import errno
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.cli import main as main_module
from realm_jax.cli import words
from realm_jax.cli.main import VERBS, make_parser


@pytest.mark.parametrize(
    "verb", [[v] for v in VERBS] + [["corpus", "build"], ["corpus", "inspect"]]
)
def test_every_help_shows_an_example(realm, verb):
    result = realm(*verb, "--help")
    assert result.code == 0
    assert f"realm {' '.join(verb)} " in result.out.split("example:")[1]


@pytest.mark.parametrize(
    ("verb", "told"),
    [("train", True), ("tag train", True), ("corpus inspect", True), ("index", False)],
)
def test_help_says_where_config_keys_can_be_set(realm, verb, told):
    assert ("--config.KEY=VALUE" in realm(*verb.split(), "--help").out) == told


def test_help_lists_all_verbs(realm):
    out = realm("--help").out
    assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize(
    "command", [[], ["frobnicate"], ["ask"], ["run", "--workdir=w", "--speed=3"], ["corpus"]]
)
def test_wrong_usage_and_other_errors_have_different_exit_codes(realm, command):
    result = realm(*command)
    result.refused("--help", code=2)


def arguments_of(parser):
    """Parser and argument for each argument with a value, of a verb and of its sub-verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from arguments_of(child)
        elif action.nargs != 0:
            yield parser, action


@pytest.mark.parametrize("verb", VERBS)
def test_an_argument_is_never_empty(verb):
    """Such as that of an unset variable: the path would be the current folder."""
    found = list(arguments_of(make_parser([verb])[1]))
    assert found or verb == "doctor"
    for parser, action in found:
        if action.type is words.text or action.dest == "beam":
            continue  # question, answer and ids have errors of their own; Beam needs no options
        with pytest.raises(argparse.ArgumentError, match=r"expected|invalid"):
            parser._get_values(action, [""])


@pytest.mark.parametrize("command", [["check", "."], ["ask", "--workdir=w", "who?"]])
def test_overrides_are_refused_by_verbs_without_a_config(realm, command):
    realm(*command, "--config.seed=1").refused("--config.seed=1", code=2)


def test_an_override_with_a_blank_is_no_question(realm, finished, tiny, tmp_path):
    corpus = shutil.copytree(tiny.folder, tmp_path / "my wiki")
    moved = f"--config.corpus.knowledge={corpus}"
    told = realm("ask", f"--workdir={finished.workdir}", moved, "who?")
    assert told.code == 0


def test_an_override_without_a_value_is_refused_with_its_form(realm):
    told = realm("ask", "--workdir=w", "--config.corpus.knowledge", "/data/wiki", "who?")
    told.refused("write --config.corpus.knowledge=VALUE", code=2)


@pytest.mark.parametrize("verb", ["train", "run"])
def test_a_missing_config_flag_is_refused(realm, tmp_path, verb):
    realm(verb, f"--workdir={tmp_path / 'w'}").refused("no config", tmp_path / "w", "--config=")
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("stages.realm.stepz=3", ["stages.realm.stepz", "did you mean 'stages.realm.steps'"]),
        ("stages.realm.steps=many", ["wrong type", "int", "'many'"]),
        ("stages.realm.steps=2.5", ["wrong type", "int", "'2.5'"]),
        ("stages.realm.steps=-1", ["config.stages.realm.steps", "at least 0", "-1"]),
        ("stages.ict.batch=0", ["config.stages.ict.batch", "at least 1"]),
        ("retrieval.candidates=1", ["config.retrieval.candidates", "at least 2"]),
        ("retrieval.null_passage=3", ["wrong type", "bool"]),
        ("lengths.joint=24", ["config.lengths.joint", "more than lengths.query"]),
        ("lengths.passage=4096", ["config.model.positions", "at least 4096"]),
        ("model.heads=5", ["config.model.heads", "divisor"]),
        ("model.dropout=1.5", ["config.model.dropout", "below 1"]),
        ("search.kind=annoy", ["config.search.kind", "scann or exact or mesh", "'annoy'"]),
        ("builder.shard=0", ["config.builder.shard", "at least 1"]),
        ("report.every=0", ["config.report.every", "at least 1"]),
        ("mesh.model=3", ["mesh"]),
        ("stages.realm.stop_utility=0.1", ["stop_utility", "at most 0.0", "least_utility"]),
    ],
)
def test_invalid_config_values_are_refused(realm, tmp_path, config_file, override, words):
    workdir = tmp_path / "w"
    command = ["run", f"--config={config_file}", f"--workdir={workdir}", f"--config.{override}"]
    realm(*command).refused(*words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def get_config(:", ["SyntaxError"]),
        ("import no_such_module", ["no_such_module"]),
        ("x = 1", ["get_config"]),
        (
            "from realm_jax import config\n"
            "def get_config():\n  c = config.default()\n  c.stages.realm.stepz = 3\n  return c\n",
            ["unknown config key", "did you mean 'stages.realm.steps'"],
        ),
        (
            "from realm_jax import config\n"
            "def get_config():\n  c = config.default()\n  c.seed = 'x'\n  return c\n",
            ["seed"],
        ),
    ],
)
def test_invalid_config_files_are_refused(realm, tmp_path, content, words):
    path = tmp_path / "bad_config.py"
    path.write_text(content)
    realm("train", f"--config={path}", f"--workdir={tmp_path / 'w'}").refused(*words, path)
    assert not (tmp_path / "w").exists()


def test_a_missing_config_file_is_refused(realm, tmp_path):
    path = tmp_path / "none.py"
    realm("run", f"--config={path}", f"--workdir={tmp_path / 'w'}").refused("no such config", path)


def test_the_closest_config_file_is_suggested(realm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    for name in ("wiki_sample", "almanac"):
        (tmp_path / f"experiments/{name}.py").write_text("")
    result = realm("run", "--config=experiments/wiki_sampel.py", "--workdir=w")
    result.refused("no such config", "did you mean --config=wiki_sample?")


def test_a_truncated_config_in_the_workdir_is_refused(realm, tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 0')
    realm("run", f"--workdir={tmp_path}").refused("not JSON", tmp_path / "config.json")


@pytest.mark.parametrize("verb", ["run", "train"])
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("corpus.knowledge=nowhere", ["no corpus in this folder", "nowhere"]),
        ("corpus.knowledge=", ["no knowledge corpus", "config.corpus.knowledge"]),
    ],
)
def test_a_missing_corpus_leaves_no_workdir(realm, tmp_path, config_file, verb, override, words):
    workdir = tmp_path / "w"
    command = [verb, f"--config={config_file}", f"--workdir={workdir}", f"--config.{override}"]
    realm(*command).refused(*words)
    assert not workdir.exists()


def test_a_workdir_of_another_model_is_refused(realm, finished, config_file):
    before = finished.config.read_bytes()
    command = ["run", f"--config={config_file}", f"--workdir={finished.workdir}"]
    result = realm(*command, "--config.model.hidden=32", "--config.lengths.masks=3")
    kept, asked = "lengths.masks 6, model.hidden 16", "lengths.masks 3, model.hidden 32"
    result.refused("run of another model", finished.config, kept, asked, "--workdir")
    assert finished.config.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, ["No space left", "free disk space"]),
        (errno.EDQUOT, ["quota exceeded", "free disk space"]),
        (errno.EACCES, ["Permission denied"]),
        (errno.EMFILE, ["Too many open files", "ulimit -n"]),
    ],
)
def test_operating_system_errors_have_no_traceback(realm, monkeypatch, tmp_path, number, words):
    import os

    from realm_jax.artifacts import verify as check_module

    def full(folder, paths):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))

    monkeypatch.setattr(check_module, "check", full)
    realm("check", tmp_path).refused(*words, tmp_path / "file")


def no_thread():
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (jax.jit(lambda: jnp.zeros(1 << 46)), ["out of memory", "allocat", "troubleshooting.md"]),
        (lambda: np.ones(1 << 48), ["out of memory", "allocate 2.00 PiB", "troubleshooting.md"]),
        (no_thread, ["cannot start another thread", "ulimit -u"]),
    ],
)
def test_a_process_without_memory_or_threads_has_no_traceback(
    realm, monkeypatch, tmp_path, work, words
):
    from realm_jax.artifacts import verify as check_module

    monkeypatch.setattr(check_module, "check", lambda folder, paths: work())
    realm("check", tmp_path).refused(*words)


def test_ctrl_c_ends_a_verb_that_saves_nothing(realm, monkeypatch, tmp_path):
    from realm_jax.artifacts import verify as check_module

    def interrupted(folder, paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(check_module, "check", interrupted)
    realm("check", tmp_path).refused("interrupted", code=75)


def test_all_verb_modules_have_the_required_functions():
    for verb in VERBS.values():
        module = main_module.import_module(f"realm_jax.cli.{verb.module}")
        assert verb.help
        assert "realm " in module.EXAMPLE
