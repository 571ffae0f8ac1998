"""Files of a run without a manifest: config.json, vocab.txt and the logs, damaged."""

import shutil

import pytest
from support.finished_run import STEP
from support.run_logs import append_record
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.required import read_swaps
from realm_jax.errors import ConfigError
from realm_jax.report.run_data import read_run
from realm_jax.storage import commit, files
from realm_jax.storage.layout import CONFIG, VOCABULARY, step_name
from realm_jax.trainer.resume import check_run_config

QUESTION = "What is the capital of Ora?"


def _other_byte(content):
    return content[:100] + b"\xff" + content[101:]


@pytest.mark.parametrize("damage", [_other_byte, lambda content: content[:-9], lambda _: b""])
def test_a_damaged_config_is_named_with_the_copy_that_replaces_it(realm, copied, damage):
    kept = copied.config.read_bytes()
    checkpoints = copied.checkpoints("realm")
    fields = {"kind": "checkpoint"}
    commit.publish(checkpoints, STEP, lambda to: files.write_bytes(to / CONFIG, kept), fields)
    copied.config.write_bytes(damage(kept))
    workdir, copy = f"--workdir={copied.workdir}", checkpoints / step_name(STEP) / CONFIG
    for verb in (["ask", QUESTION], ["report"], ["train", "--dry-run"], ["index", "--once"]):
        realm(verb[0], workdir, *verb[1:]).refused("config is not JSON", copied.config, copy)
    with pytest.raises(ConfigError, match=f"replace it by its copy {copy}"):
        check_run_config(copied, tiny_config())  # of a command with --config
    checked = realm("check", copied.workdir)
    checked.refused(CONFIG, f"fix:      replace it by its copy {copy}", "NOT VALID")
    assert "--repair" not in checked.err
    shutil.copy(copy, copied.config)
    assert realm("check", copied.workdir).code == 0


def test_a_damaged_vocabulary_of_a_run_is_not_that_of_another_corpus(realm, copied, tiny):
    """The corpus is not to be built again: with which vocabulary?"""
    words = (tiny.folder / VOCABULARY).read_bytes()
    copied.corpora.write_text(f'{{"knowledge": "{tiny.store.corpus_hash}"}}')
    copied.vocabulary.write_bytes(words[:-9])
    for verb in (["check", copied.workdir], ["ask", f"--workdir={copied.workdir}", QUESTION]):
        refused = realm(*verb)
        refused.refused(copied.vocabulary, f"realm check {tiny.folder}; if the corpus is valid")
        assert "build it again" not in refused.err
    copied.vocabulary.write_bytes(words)
    assert realm("check", copied.workdir).code == 0


def test_a_log_record_without_its_step_is_left_out(realm, copied):
    for log in ("realm", "index_builder", "swaps", "indexes"):
        append_record(copied, log, {"stage": log, "stfp": 2, "time": 1.0})
        append_record(copied, log, {"stage": log, "step": 3, "index_step": 2, "time": 2.0})
    append_record(copied, "swaps", {"step": 4, "indey_step": 2, "time": 3.0})
    workdir = f"--workdir={copied.workdir}"
    assert read_swaps(copied) == [(3, 2)]
    assert realm("status", workdir, "--json").json()["step"] == 3
    assert realm("status", workdir, "--watch").code == 0
    assert [record["step"] for record in read_run(str(copied.workdir)).refreshes] == [3]
