"""Tagger training: from a CoNLL file to a published tagger, with interruption and resumption."""

import random
import shutil
import threading

import jax
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.verify import check
from realm_jax.errors import ConfigError, MismatchError, Stopped
from realm_jax.monitoring.status import read_status
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from realm_jax.storage.locks import job_lock
from realm_jax.tagging.conll import read_conll
from realm_jax.tagging.published_tagger import read_tagger
from realm_jax.tagging.stage import TaggerStage, evaluate_tagger
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.train import train_tagger
from realm_jax.trainer.run import JOB

STEPS = 60


@pytest.fixture(scope="module")
def newswire(tmp_path_factory):
    """A synthetic file: capitals mark persons, and the preceding word marks locations."""
    rng = random.Random(0)
    lines = []
    for _ in range(120):
        name = "".join(rng.choices("aeiouklmn", k=4))
        sentence = [("the", "O"), ("river", "O"), ("in", "O"), (name.capitalize(), "B-LOC")]
        if rng.random() < 0.5:
            sentence = [(name.upper(), "B-PER"), (name.upper(), "I-PER"), ("was", "O"), (name, "O")]
        lines += [f"{word} X X {tag}" for word, tag in sentence] + [""]
    path = tmp_path_factory.mktemp("newswire") / "train.txt"
    path.write_text("\n".join(lines))
    return str(path)


def config_of(tiny, newswire, **changes):
    fixed = {
        "stages__tagger__steps": STEPS,
        "stages__tagger__row_length": 24,
        "model__dropout": 0.0,
        "model__layers": 1,
    }
    learning = {"model__init_stddev": 0.1, "optimizer__b2": 0.98}
    changes = {**fixed, **learning, "stages__tagger__learning_rate": 5e-3, **changes}
    config = tiny_config(
        stages__tagger__train_file=newswire, **changes
    ).copy_and_resolve_references()
    config.unlock()
    config.stages.tagger.vocabulary = str(tiny.folder / "vocab.txt")
    return config


def run(workdir, config, stop=None):
    return train_tagger(str(workdir), config, stop or threading.Event())


@pytest.fixture(scope="module")
def trained(tiny, newswire, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("trained") / "run"
    config = config_of(tiny, newswire, stages__tagger__held_out_file=newswire)
    assert run(workdir, config) == STEPS
    return workdir


def test_the_tagger_learns_and_is_published(trained, newswire):
    tagger, published = Tagger.open(str(trained))
    figures = evaluate_tagger(tagger, read_conll(newswire, tagger.types))
    assert figures.total.fb1 > 90
    assert figures.by_type["PER"].recall > 90  # in lower case the same tokens are not a person
    assert check(trained)["ok"] and check(published.folder)["kind"] == "tagger"
    log = (trained / "logs" / "tagger.jsonl").read_text()
    assert '"held_out_fb1"' in log
    assert read_status(RunDir(trained))["ended"]


def test_a_stopped_and_resumed_run_ends_with_the_same_params(trained, tiny, newswire, tmp_path):
    stop = threading.Event()

    class Stopping(TaggerStage):
        def evaluate(self, step, params, evaluation):
            stop.set()
            return {}

    config = config_of(tiny, newswire, stages__tagger__evaluate_every=15)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped, match="step 15"):
        patch.setattr("realm_jax.tagging.train.TaggerStage", Stopping)
        run(tmp_path, config, stop)
    assert commit.steps(RunDir(tmp_path).checkpoints("tagger")) == [15]
    run(tmp_path, config)
    jax.tree.map(
        np.testing.assert_array_equal,
        read_tagger(RunDir(tmp_path)).parameters,
        read_tagger(RunDir(trained)).parameters,
    )


def test_a_second_process_in_the_same_folder_waits_and_writes_nothing(tiny, newswire, tmp_path):
    stop = threading.Event()
    stop.set()
    with job_lock(RunDir(tmp_path), JOB, threading.Event()), pytest.raises(Stopped):
        run(tmp_path, config_of(tiny, newswire), stop)
    assert not RunDir(tmp_path).config.exists()


def test_another_vocabulary_or_too_long_rows_are_refused(trained, tiny, newswire, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text((tiny.folder / "vocab.txt").read_text() + "zzz\n")
    config = config_of(tiny, newswire)
    config.stages.tagger.vocabulary = str(other)
    shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(MismatchError, match="vocabulary"):
        run(tmp_path / "run", config)
    with pytest.raises(ConfigError, match=r"stages\.tagger\.row_length"):
        run(tmp_path / "new", config_of(tiny, newswire, stages__tagger__row_length=65))
    with pytest.raises(ConfigError, match="--input"):
        run(tmp_path / "new", config_of(tiny, ""))
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_without_a_vocabulary_file_one_is_trained_once(tiny, newswire, tmp_path):
    config = config_of(tiny, newswire, stages__tagger__steps=1)
    config.stages.tagger.vocabulary = ""
    run(tmp_path, config)
    first = (tmp_path / "vocab.txt").read_bytes()
    assert b"[MASK]" in first
    run(tmp_path, config)
    assert (tmp_path / "vocab.txt").read_bytes() == first


@pytest.mark.slow
def test_training_starts_from_imported_bert_weights(trained, tiny, newswire, tmp_path):
    from realm_jax.interop.save import save_bert
    from realm_jax.models.modules import Modules

    config = config_of(tiny, newswire, stages__tagger__steps=1, stages__tagger__learning_rate=0.0)
    drawn = jax.jit(Modules(config.model, tiny.store.vocabulary.size, ("reader",)).init)(
        jax.random.key(9)
    )
    save_bert(tmp_path / "bert", jax.device_get(drawn["reader"]), config.model)
    config.model.start = str(tmp_path / "bert")
    run(tmp_path / "run", config)
    found = read_tagger(RunDir(tmp_path / "run")).parameters
    jax.tree.map(
        np.testing.assert_array_equal, found["bert"], jax.device_get(drawn["reader"]["bert"])
    )
    assert not found["shape"].any()
