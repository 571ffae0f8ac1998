"""What stops a run before it writes anything."""

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.errors import ConfigError, InputError
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.prepare import prepare
from realm_jax.trainer.resume import check_steps_not_reduced


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
