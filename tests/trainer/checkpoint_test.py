"""Process 0 decides for all processes which checkpoint is restored, and whether one is written."""

import jax
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import make_mesh
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.state import TrainState


@pytest.mark.parametrize("new", [True, False])
def test_another_process_follows_process_0_and_not_its_own_view(tmp_path, monkeypatch, new):
    """It sees an empty folder, as on a network file system; process 0 has saved step 7."""
    config, asked, written = tiny_config(), [], []
    answers = {"checkpoint/ict/newest": 7, "checkpoint/ict/new": new}

    def all_gather(topic, step, value=None):
        asked.append(topic)
        return [answers.get(topic), value]

    monkeypatch.setattr(hosts, "is_leader", lambda: False)
    monkeypatch.setattr(hosts, "all_gather", all_gather)
    monkeypatch.setattr(Checkpoints, "_write", lambda *_: written.append(True))
    checkpoints = Checkpoints(RunDir(tmp_path), "ict", 1, "{}", make_mesh(config.mesh))
    assert checkpoints.newest() == 7
    checkpoints.save(TrainState(jax.numpy.int32(7), {}, (), {}), {})
    assert written == [True] * new
    assert asked == [f"checkpoint/ict/{what}" for what in ("newest", "new", "saved")]
