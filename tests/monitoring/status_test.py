"""The status of a run, read from its folder while other processes write to it."""

import time

import pytest
from support.run_logs import append_record
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.errors import InputError
from realm_jax.monitoring.status import read_status
from realm_jax.storage import commit, files, follow, heartbeat
from realm_jax.storage.layout import RunDir

NOW = 1000.0


@pytest.fixture
def run(tmp_path):
    """A run in stage REALM."""
    run = RunDir(tmp_path / "run")
    config = tiny_config("corpus", stages__realm__steps=40, stages__ict__steps=9)
    files.write_bytes(run.config, config_lib.to_json(config).encode())
    append_record(run, "ict", {"stage": "ict", "step": 9, "time": 800.0})
    append_record(run, "realm", {"stage": "realm", "step": 10, "time": 900.0})
    heartbeat.beat(run, "trainer", clock=lambda: 905.0, stage="realm", step=12)
    for step, index_step in ((0, 0), (8, 4), (14, 10)):
        append_record(run, "swaps", {"step": step, "index_step": index_step, "time": 1.0})
    progress = {"state": "embedding", "done": 20, "total": 80, "eta_s": 6.5}
    heartbeat.beat(run, "index_builder", clock=lambda: 998.0, **progress)
    return run


def status(run):
    return read_status(run, clock=lambda: NOW)


def test_status_of_a_run_in_stage_realm(run):
    assert status(run) == {
        "stage": "realm",
        "step": 12,
        "steps": 40,
        "index_step": 4,
        "staleness_steps": 8,
        "index_age_s": None,
        "builder": {
            "state": "embedding",
            "done": 20,
            "total": 80,
            "eta_s": 6.5,
            "heartbeat_age_s": 2.0,
        },
        "heartbeat_age_s": 95.0,
        "ended": False,
    }


def test_staleness_is_that_of_the_snapshots_of_the_segments(run):
    """With refresh.mode=rolling, an index has segments of earlier snapshots."""
    append_record(run, "swaps", {"step": 11, "index_step": 10, "mean_snapshot_step": 5.5})
    assert (status(run)["index_step"], status(run)["staleness_steps"]) == (10, 6.5)


def test_the_newer_of_heartbeat_and_log_counts(run):
    append_record(run, "realm", {"stage": "realm", "step": 15, "time": 990.0})
    found = status(run)
    assert (found["step"], found["index_step"], found["heartbeat_age_s"]) == (15, 10, 10.0)


def test_incomplete_files_are_ignored(run):
    with (run.logs / "realm.jsonl").open("a") as file:
        file.write('{"stage": "realm", "step": 16, "ti')
    beat = run.heartbeats / "index_builder.json"
    beat.write_text(beat.read_text()[:-10])
    run.config.write_text("{")
    found = status(run)
    assert (found["step"], found["steps"]) == (12, None)
    assert found["builder"]["state"] is None


def test_other_stages_have_no_index(run):
    append_record(run, "qa", {"stage": "qa", "step": 3, "time": 990.0})
    found = status(run)
    assert (found["stage"], found["index_step"], found["staleness_steps"]) == ("qa", None, None)


def test_a_finished_run_reports_the_index_of_its_export(tmp_path, tiny):
    from support.finished_run import STEP, write_finished_run

    config = tiny_config(tiny.folder, stages__realm__steps=STEP)
    run = write_finished_run(tmp_path / "run", tiny, config)
    heartbeat.beat(run, "trainer", clock=lambda: NOW, stage="done", step=STEP)
    found = status(run)
    assert (found["stage"], found["step"], found["steps"]) == ("done", STEP, STEP)
    assert (found["index_step"], found["staleness_steps"], found["ended"]) == (STEP, 0, True)


def test_a_finished_run_is_as_stale_as_the_segments_of_its_index(run):
    """With refresh.mode=rolling, its index has segments of earlier snapshots too."""
    steps = [{"snapshot_step": step} for step in (0, 20, 40)]
    for folder, fields in (
        (run.published_index, {"kind": "published_index", "segments": steps}),
        (run.export, {"kind": "export", "index_step": 40}),
    ):
        commit.publish(folder, 40, lambda _: None, fields)
    heartbeat.beat(run, "trainer", clock=lambda: NOW, stage="done", step=40)
    assert (status(run)["index_step"], status(run)["staleness_steps"]) == (40, 20)


def test_a_run_without_heartbeats_and_logs_has_unknown_values(tmp_path):
    run = RunDir(tmp_path)
    files.write_bytes(run.config, config_lib.to_json(tiny_config("corpus")).encode())
    found = status(run)
    assert {found[key] for key in ("stage", "step", "index_step", "heartbeat_age_s")} == {None}
    follow.mark_end(run)
    assert status(run)["ended"]


def test_a_finished_run_that_is_fine_tuned_has_not_ended(run):
    """Before, --watch ended at once, and a stopped fine-tuning was reported as ended."""
    follow.mark_end(run, step=40)
    assert status(run)["ended"]
    append_record(run, "qa", {"stage": "qa", "step": 3, "time": time.time()})
    assert not status(run)["ended"]
    follow.mark_end(run, step=40)
    heartbeat.beat(run, "trainer", stage="done", step=40)
    assert status(run)["ended"]
    run.end_marker.write_text("{")
    assert status(run)["ended"]


@pytest.mark.parametrize("address", ["nowhere", "", "nothing://bucket/run"])
def test_addresses_without_a_run_are_refused(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no run here|cannot be read on this machine"):
        status(RunDir(address))


def test_a_missing_package_for_an_address_is_named(monkeypatch):
    def lacking(scheme):
        raise ImportError(f"Install the package of {scheme}")

    monkeypatch.setattr("fsspec.get_filesystem_class", lacking)
    with pytest.raises(InputError, match=r"Install the package of az[\s\S]*fix: +pip install"):
        status(RunDir("az://bucket/run"))
