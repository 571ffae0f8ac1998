"""What stops a run before it writes anything."""

import threading

import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.errors import ConfigError, InputError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.prepare import prepare
from realm_jax.trainer.resume import (
    check_earlier_stages,
    check_steps_not_reduced,
    other_settings,
)
from realm_jax.trainer.run import run as train


def test_cudnn_cannot_hide_single_tokens(tiny, tmp_path):
    changes = {"model__attention": "cudnn", "stages__reader__hidden_mask_share": 0.1}
    with pytest.raises(ConfigError, match="hidden_mask_share"):
        prepare(str(tmp_path), tiny_config(tiny.folder, stages__reader__steps=2, **changes))
    prepare(str(tmp_path), tiny_config(tiny.folder, stages__reader__steps=0, **changes))


@pytest.mark.parametrize(("step", "concluded", "least"), [(4, True, 4), (3, False, 4)])
def test_a_stage_cannot_end_before_its_checkpoint(tmp_path, step, concluded, least):
    run = RunDir(tmp_path)
    fields = {"kind": "checkpoint", "concluded": concluded}
    commit.publish(run.checkpoints("reader"), 2, lambda folder: None, fields)
    commit.publish(run.checkpoints("ict"), step, lambda folder: None, fields)
    config = tiny_config(stages__reader__steps=1, stages__ict__steps=3)
    with pytest.raises(InputError, match="stage ict") as error:
        check_steps_not_reduced(run, config)
    assert error.value.fix == f"--config.stages.ict.steps={least}, or more"
    for steps in (0, least):
        check_steps_not_reduced(run, tiny_config(stages__reader__steps=1, stages__ict__steps=steps))


def test_a_stage_gets_no_other_steps_once_a_later_one_has_begun(tiny, tmp_path):
    """It once trained them, in vain: the later stage resumed from its own checkpoint."""
    run, fields = RunDir(tmp_path), {"kind": "checkpoint"}
    began = tiny_config(tiny.folder, stages__reader__steps=1, stages__ict__steps=2)
    write = lambda folder: files.write_bytes(  # noqa: E731
        folder / "config.json", config_lib.to_json(began).encode()
    )
    commit.publish(run.checkpoints("ict"), 1, write, fields)
    check_earlier_stages(run, tiny_config(stages__reader__steps=1, stages__ict__steps=3))
    for reader in (0, 3):
        changed = tiny_config(tiny.folder, stages__reader__steps=reader, stages__ict__steps=2)
        with pytest.raises(InputError, match="stage ict has begun") as error:
            check_earlier_stages(run, changed)
        assert str(error.value.fix).startswith("--config.stages.reader.steps=1,")
    with pytest.raises(InputError, match="stage ict has begun"):
        prepare(str(tmp_path), changed)


@pytest.mark.parametrize("starts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stage_that_continues_with_other_settings_says_so(tiny, tmp_path, caplog, starts):
    run, fields = RunDir(tmp_path), {"kind": "checkpoint"}
    began = tiny_config(tiny.folder, stages__ict__steps=2, stages__realm__steps=2)
    write = lambda folder: files.write_bytes(  # noqa: E731
        folder / "config.json", config_lib.to_json(began).encode()
    )
    commit.publish(run.checkpoints("ict"), 2, write, fields)
    commit.publish(run.checkpoints("realm"), 2, write, fields)
    changes = {"seed": 3, "stages__realm__batch": 16, "report__every": 9, "stages__ict__steps": 2}
    finished = tiny_config(tiny.folder, stages__realm__steps=2, **changes)
    assert not other_settings(run, finished)
    assert not other_settings(RunDir(tmp_path / "new"), finished)
    continued = tiny_config(tiny.folder, stages__realm__steps=3, **changes)
    other = (
        "seed 3 (before: 0), stages.realm.batch 16 (before: 8), stages.realm.steps 3 (before: 2)"
    )
    assert other_settings(run, continued) == other

    def builder():
        raise KeyboardInterrupt  # before the first step

    if starts:
        with pytest.raises(KeyboardInterrupt):
            train(str(tmp_path), continued, threading.Event(), builder)
        assert other in caplog.text


def test_a_missing_reader_of_another_run_is_found_before_pre_training(tiny, tmp_path):
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "What is the capital of Ora?", "answers": ["Ino0"]}\n')
    changes = {
        "corpus__questions": str(questions),
        "stages__qa__reader_from": str(tmp_path / "none"),
        "stages__realm__steps": 2,
    }
    prepare(str(tmp_path / "run"), tiny_config(tiny.folder, **changes))  # it is not fine-tuned
    with pytest.raises(InputError, match=r"no pre-trained reader[\s\S]*none"):
        prepare(str(tmp_path / "run"), tiny_config(tiny.folder, stages__qa__steps=2, **changes))
