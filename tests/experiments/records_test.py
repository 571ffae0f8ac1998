"""Records and shared files of the experiments: one encoder, interruptions, time of all commands."""

import json
import runpy
import subprocess
import sys
import tarfile
import time

import jax
import numpy as np
import pytest
import squad_minilm
import table2
import warm_start
from evidence_runs import aggregate, measure, rows
from evidence_runs.collections import unpack
from evidence_runs.measure import Measurement
from evidence_runs.start import MINILM, start_of
from evidence_runs.systems import TRAINED
from safetensors.numpy import load_file, save_file
from support import tiny_corpus
from support.judged import write_judged_set
from support.tiny_encoder import LIKE_MINILM, write_tiny_encoder
from table2_small import records, run_row

from realm_jax.cli.scripts import exit_with, require_same_settings
from realm_jax.corpus.almanac_store import VOCABULARY, VOCABULARY_SIZE
from realm_jax.errors import InputError, MismatchError
from realm_jax.interop.vocabulary_files import read_pieces
from realm_jax.interop.weights import open_weights
from realm_jax.models.modules import Modules
from realm_jax.storage.failpoints import armed
from realm_jax.text.vocabulary import write_vocabulary


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Two encoders that differ in one number."""
    folder = tmp_path_factory.mktemp("encoders")
    write_vocabulary(folder / "vocab.txt", tiny_corpus.vocabulary())
    one, other = (
        write_tiny_encoder(folder / name, folder / "vocab.txt", LIKE_MINILM)
        for name in ("one", "other")
    )
    arrays = load_file(other / "model.safetensors")
    next(iter(arrays.values())).flat[0] += 1
    save_file(arrays, other / "model.safetensors")
    return one, other


class Measured(Measurement):
    """A measurement whose values are known without runs."""

    def _evaluated_run(self, kind):
        return self.home, {}

    def _evaluate(self, workdir, flags):
        return {name: np.ones(4) for name in measure.MEASURES}


class Trained(Measured):
    """A measurement whose training is known without a run."""

    def _evaluated_run(self, kind):
        return self.home, {"curve": []}


def test_the_digest_of_an_encoder_is_that_of_its_arrays(tmp_path, encoders):
    one, other = encoders
    assert start_of(str(one))["name"] == "one"
    assert start_of(str(one))["digest"] != start_of(str(other))["digest"]
    copied = tmp_path / "copied"
    copied.mkdir()
    for path in one.rglob("*"):
        to = copied / path.relative_to(one)
        to.mkdir() if path.is_dir() else to.write_bytes(path.read_bytes())
    arrays = load_file(copied / "model.safetensors")
    save_file(arrays, copied / "model.safetensors", {"format": "pt", "other": "bytes"})
    assert (copied / "model.safetensors").read_bytes() != (one / "model.safetensors").read_bytes()
    assert start_of(str(copied))["digest"] == start_of(str(one))["digest"]


def test_records_of_two_encoders_are_refused_in_one_folder(tmp_path, encoders):
    one, other = map(str, encoders)
    make = lambda seed, start, **more: Measured(  # noqa: E731
        tmp_path / "adi", "realm", seed, start, tmp_path, **more
    )
    make(0, one).write(tmp_path / "records")
    make(0, one).write(tmp_path / "records")
    for seed in (0, 1):  # a record that exists, and one that does not
        with pytest.raises(MismatchError, match=r"another encoder[\s\S]*other \(.*\n.*one \("):
            make(seed, other).write(tmp_path / "records")
    make(1, other, label="of_other").write(tmp_path / "records")
    written = tmp_path / "records" / "of_other" / "adi.realm.1.json"
    assert json.loads(written.read_text())["start"] == start_of(other)
    written.rename(tmp_path / "records" / written.name)
    with pytest.raises(MismatchError, match=r"another encoder[\s\S]*one \(.*\n.*other \("):
        aggregate.read_records(tmp_path / "records")


def test_seeds_of_another_recipe_are_refused_under_one_label(tmp_path, encoders):
    make = lambda system, seed, *overrides, label="few": Trained(  # noqa: E731
        tmp_path / "adi", system, seed, str(encoders[0]), tmp_path, label, overrides
    )
    make("realm", 0, "--config.a=1").write(tmp_path)
    for seed in (0, 1):
        with pytest.raises(InputError, match=r"another recipe[\s\S]*a=1\n.*a=2\n"):
            make("realm", seed, "--config.a=2").write(tmp_path)
    make("realm", 1, "--config.a=1").write(tmp_path)
    make("ict", 0, "--config.a=2").write(tmp_path)
    make("realm", 2, "--config.a=2", label="other").write(tmp_path)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))
    expected = ["few/adi.ict.0.json", "few/adi.realm.0.json", "few/adi.realm.1.json"]
    assert names == [*expected, "other/adi.realm.2.json"]


def test_records_without_an_encoder_are_of_minilm(tmp_path, encoders):
    (tmp_path / "adi.bm25.0.json").write_text("{}")
    with pytest.raises(MismatchError, match=MINILM["digest"]):
        Measured(tmp_path / "adi", "start", 0, str(encoders[0]), tmp_path).write(tmp_path)


@pytest.mark.parametrize("name", ["realm_1.json", rows.UNTRAINED])
def test_rows_of_two_encoders_or_taggers_are_refused(tmp_path, encoders, monkeypatch, name):
    first, second = (records.described(str(one), "taggers/good") for one in encoders)
    records.store(tmp_path / "realm_0.json", {"row": "realm"}, first, [], 0.0)
    written = json.loads((tmp_path / "realm_0.json").read_text())
    assert written["start"] == start_of(str(encoders[0])) and written["tagger"] == "good"

    def run(*flags):
        monkeypatch.setattr(
            sys, "argv", ["table2.py", "--row=realm", f"--records={tmp_path}", *flags]
        )
        with pytest.raises(SystemExit) as ended:
            exit_with(table2.main)
        return str(ended.value.code)

    assert "start from another encoder" in run(f"--start={encoders[1]}", "--tagger=good")
    assert "are of another tagger" in run(f"--start={encoders[0]}", "--tagger=rules")
    assert run(f"--start={encoders[0]}", "--tagger=good") == "0"  # it exists
    records.store(tmp_path / name, {"row": "realm", "by_question": {}}, second, [], 0.0)
    with pytest.raises(MismatchError, match="another encoder"):
        rows.aggregate_rows(tmp_path)


def test_rows_of_other_overrides_are_refused_in_one_folder(tmp_path, monkeypatch):
    records.store(tmp_path / "realm_0.json", {"row": "realm"}, {}, ["--config.seed=1"], 0.0)

    def run(*flags):
        given = [f"--records={tmp_path}", f"--data={tmp_path / 'none'}", f"--home={tmp_path / 'a'}"]
        monkeypatch.setattr(sys, "argv", ["table2.py", *given, *flags])
        with pytest.raises(SystemExit) as ended:
            exit_with(table2.main)
        return str(ended.value.code)

    for chosen in (["--row=realm", "--seed=1"], ["--row=ict_only"], ["--all", "--seeds=2"]):
        said = run(*chosen, "--config.seed=2")
        assert "with other overrides" in said and "--config.seed=1\n" in said, said
    assert "no overrides" in run("--row=ict_only")
    assert run("--row=realm", "--config.seed=1") == "0"  # it exists


def test_make_evidence_uses_the_overrides_of_the_records():
    root = table2.RESULTS.parents[1]
    shown = subprocess.run(
        ["make", "-n", "evidence"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    commands = [line.split() for line in shown.splitlines() if "table2.py" in line]
    given = [[one for one in command if one.startswith("--config.")] for command in commands]
    kept = [json.loads(one.read_text()) for one in table2.RUNS_FROM_START.glob("*_*.json")]
    assert len(given) == 2 and all(flags == one["overrides"] for one in kept for flags in given)


def test_a_collection_is_complete_after_an_interrupted_unpacking(tmp_path, monkeypatch):
    made = write_judged_set(tmp_path / "made" / "adi")
    names = sorted((path.name for path in made.iterdir()), reverse=True)  # qrels.tsv is not last
    with tarfile.open(tmp_path / "adi.tar.xz", "w:xz") as archive:
        for name in names:
            archive.add(made / name, f"adi/{name}")
    whole = {name: (made / name).read_bytes() for name in names}
    makefile = tarfile.TarFile.makefile

    for last in range(1, len(names) + 1):
        left = [KeyboardInterrupt if number == last else None for number in range(1, 4)]

        def stopped(self, member, path, left=iter(left)):  # noqa: B008 - of this turn
            makefile(self, member, path)
            if error := next(left):
                raise error

        monkeypatch.setattr(tarfile.TarFile, "makefile", stopped)
        with pytest.raises(KeyboardInterrupt):
            unpack(tmp_path, "adi", tmp_path / f"home{last}")
        monkeypatch.setattr(tarfile.TarFile, "makefile", makefile)
        for _ in range(2):
            folder = unpack(tmp_path, "adi", tmp_path / f"home{last}")
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
        assert [path.name for path in folder.parent.iterdir()] == ["adi"]


@pytest.fixture
def trained_run(tmp_path, encoders):
    """A measurement whose training is finished, and the folder of its run."""
    measured = Measurement(tmp_path / "adi", "realm", 0, str(encoders[0]), tmp_path / "home")
    own = tmp_path / "home" / "adi" / "realm_0"
    settings = {"recipe": measure._recipe_hash(), "flags": TRAINED["realm"], "overrides": []}
    require_same_settings(own.parent, {"start": measured.start})
    require_same_settings(own, settings)
    (own / "run" / "checkpoints" / "realm").mkdir(parents=True)
    (own / "documents").mkdir()
    (own / "documents" / "END.json").touch()
    (own.parent / "documents" / "spans").mkdir(parents=True)
    (own.parent / "documents" / "spans" / "MANIFEST.json").touch()
    return measured, own


def test_checkpoints_stay_until_a_file_says_that_training_is_done(trained_run, monkeypatch):
    measured, own = trained_run
    monkeypatch.setattr(Measurement, "_train", lambda *_: {"curve": []})
    monkeypatch.setattr(Measurement, "_realm", lambda *_: None)
    with armed("file.rename=error"), pytest.raises(OSError, match="failpoint"):
        measured._evaluated_run("realm")
    assert (own / "run" / "checkpoints").exists()
    assert measured._evaluated_run("realm") == (own / "documents", {"curve": []})
    assert not (own / "run" / "checkpoints").exists()


def test_a_finished_training_is_not_repeated_and_its_checkpoints_are_deleted(trained_run):
    measured, own = trained_run
    (own / "training.json").write_text('{"curve": [1]}')  # killed before the deletion
    assert measured._evaluated_run("realm") == (own / "documents", {"curve": [1]})
    assert not (own / "run" / "checkpoints").exists() and measured._commands() == ([], {})


def test_the_time_of_failed_and_interrupted_commands_counts(tmp_path, monkeypatch):
    made = lambda: Measurement(  # noqa: E731
        tmp_path / "adi", "realm", 0, str(tmp_path / "none"), tmp_path / "home"
    )
    for _ in range(2):
        measured = made()  # each in a process of its own
        measured._log_to(tmp_path / "home" / "commands.jsonl")
        with pytest.raises(subprocess.CalledProcessError):
            measured._train("realm", tmp_path / "home" / "run")
    log = tmp_path / "home" / "commands.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["part"] for line in lines] == ["corpus build"] * 2
    commands, seconds = measured._commands()
    assert commands == [lines[0]["command"]] and str(tmp_path) not in commands[0]
    assert seconds == {"corpus build": sum(line["seconds"] for line in lines)}
    assert all(line["seconds"] > 0 for line in lines)
    with log.open("a") as file:  # the rerun of a killed command, which has no line
        file.write('{"command": "realm run", "part": "train", "seconds": 60}\n')
    assert measured._commands(600.0)[1]["train"] == 600.0  # with the stages before the kill
    assert measured._commands(30.0)[1]["train"] == 60.0

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "run_realm", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured._train("realm", tmp_path / "home" / "run")
    assert len(log.read_text().splitlines()) == 4


def test_a_missing_squad_file_is_named_with_its_flag(tmp_path):
    with pytest.raises(InputError, match=r"--squad=.*none\.json"):
        squad_minilm.prepare(tmp_path / "none.json", "encoder", tmp_path / "home")


def test_questions_of_another_squad_file_are_refused_in_one_folder(tmp_path):
    def written(name, answer):
        question = {"id": "q", "question": "Where?", "answers": [{"text": answer}]}
        paragraph = {"context": f"In {answer}.", "qas": [question]}
        articles = [{"title": title, "paragraphs": [paragraph]} for title in ("A", "B")]
        (tmp_path / name).write_text(json.dumps({"data": articles}))
        return tmp_path / name

    one, same, other = written("one", "Ora"), written("same", "Ora"), written("other", "Ube")
    home = tmp_path / "home"
    for squad in (one, same):
        squad_minilm.prepare(squad, "encoder", home)
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    assert {"corpus.jsonl", "train.json", "held_out.json"} <= before.keys()
    for squad, start in ((other, "encoder"), (one, "another")):
        with pytest.raises(InputError, match="results of other settings"):
            squad_minilm.prepare(squad, start, home)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


@pytest.mark.parametrize("data", [[], "abc", [3], [{"title": "A", "paragraphs": None}]])
def test_a_file_without_questions_is_refused_before_anything_is_written(tmp_path, data):
    (tmp_path / "squad.json").write_text(json.dumps({"data": data}))
    with pytest.raises(InputError, match="not a SQuAD file"):
        squad_minilm.prepare(tmp_path / "squad.json", "encoder", tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_an_unknown_key_ends_the_warm_start_with_its_message(tmp_path, monkeypatch):
    flags = [f"--workdir={tmp_path / 'run'}", f"--to={tmp_path / 'to'}", "--config.nowhere=1"]
    monkeypatch.setattr(sys, "argv", ["warm_start.py", *flags])
    with pytest.raises(SystemExit, match="unknown config key 'nowhere'"):
        runpy.run_path(warm_start.__file__, run_name="__main__")
    assert not list(tmp_path.iterdir())


def test_a_corpus_can_be_built_for_the_weights_of_the_warm_start(tmp_path):
    """Before, they had no vocabulary."""
    config = tiny_corpus.tiny_config(model__layers=1)
    shapes = Modules(config.model, VOCABULARY_SIZE, ("reader", "span_head")).shapes
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    warm_start.write(tmp_path / "W", zeros, config.model)
    vocabulary = open_weights(tmp_path / "W").vocabulary
    assert vocabulary is not None
    assert read_pieces(vocabulary) == read_pieces(VOCABULARY)


WRITERS = {
    "settings.json": lambda folder: require_same_settings(folder, {"start": "a"}),
    "row.json": lambda folder: run_row.kept_metrics(folder, lambda: {"row": "realm"}),
    "realm_0.json": lambda folder: records.store(
        folder / "realm_0.json", {"row": "realm"}, {}, [], time.monotonic()
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_written_halfway_does_not_stop_the_next_command(tmp_path, name):
    with armed("file.write=short"), pytest.raises(OSError, match="failpoint"):
        WRITERS[name](tmp_path)
    assert not (tmp_path / name).exists()
    WRITERS[name](tmp_path)
    assert json.loads((tmp_path / name).read_text())
