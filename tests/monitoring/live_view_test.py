"""The live view: every line fits the terminal, and it shows the state of the run folder."""

import io
import sys

import pytest
from rich.cells import cell_len
from rich.console import Console
from support.run_logs import append_record
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.monitoring.live_view import View, sparkline
from realm_jax.monitoring.run_state import RunState, read_run_state, stages_of
from realm_jax.monitoring.terminal import Lines, LiveView, terminal_writer
from realm_jax.storage import files, heartbeat
from realm_jax.storage.layout import RunDir

NOW = 1000.0
SIZES = [(80, 24), (120, 40), (60, 20)]


def record(step, **metrics):
    return {"stage": "realm", "step": step, "time": 900.0 + step, **metrics}


@pytest.fixture
def run(tmp_path):
    """A run in stage REALM with a builder that embeds, and one finished refresh."""
    run = RunDir(tmp_path / "a run")
    stages = {f"stages__{name}__steps": 40 for name in ("ict", "realm", "qa")}
    config = tiny_config("corpus", **stages)
    files.write_bytes(run.config, config_lib.to_json(config).encode())
    swapped = {"index_step": 8, "staleness_steps": 2, "index_age_s": 30.0}
    for step, loss in ((5, 3.0), (10, 2.0)):
        metrics = {"loss": loss, "retrieval_utility": 1.0 / loss, "p_null": 0.125}
        append_record(run, "realm", record(step, **metrics, **swapped, pieces_per_second=4321.0))
    append_record(
        run, "realm", record(10, held_out_recall_at_5=0.5, held_out_retrieval_utility=0.75)
    )
    refresh = {"stage": "index_builder", "step": 8, "time": 1.0, "seconds": 61.0, "recall": 0.997}
    append_record(run, "index_builder", refresh)
    beat = {"state": "embedding", "done": 20, "total": 80, "eta_s": 200.0}
    heartbeat.beat(run, "index_builder", clock=lambda: 998.0, **beat)
    return run


def text_of(state, width):
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    console.print(View(state))
    return console.export_text()


def huge():
    """A state in which every value is as long as possible."""
    stages = dict.fromkeys(("ict", "reader", "realm", "qa"), 200_000_000)
    state = RunState("ein sehr langer Name 日本語 " * 5, stages, stage="realm", step=199_999_999)
    metrics = {"loss": 1.2345e-10, "p_null": 1e-300, "retrieval_utility": -123456.789}
    metrics |= {"held_out_recall_at_5": 0.123456, "held_out_retrieval_utility": 1e9}
    metrics |= {"pieces_per_second": 9.87e12, "mfu": 0.123456, "eta_s": 1e9}
    metrics |= {"index_step": 199_999_000, "staleness_steps": 999, "index_age_s": 1e8}
    for step in range(400):
        state.add(record(step * 499_999, **metrics))
    state.builder = {"state": "embedding", "done": 10**9, "total": 10**10, "eta_s": 1e8}
    state.refresh = {"step": 10**8, "seconds": 1e7, "recall": 0.99999}
    return state


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_view_fits_the_terminal(run, width, height):
    for state in (read_run_state(run, clock=lambda: NOW), huge(), RunState("new", {})):
        lines = text_of(state, width).rstrip("\n").split("\n")
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= height
        assert lines[0].startswith("╭") and lines[-1].startswith("╰")


def test_view_shows_both_jobs(run):
    shown = text_of(read_run_state(run, clock=lambda: NOW), 100)
    for text in (
        "a run",
        "10/40",
        "ict ok",
        "2 █▁ nats",
        "0.75 nats per word piece at step 10",
        "0.5 held out, at step 10",
        "4,321 MFU unknown on this device",
        "of step 8 2 steps, 2 min old",
        "20/80, 3 min left",
        "of step 8 in 61 s, recall@10 0.997",
    ):
        assert text in shown, f"{text} is not in\n{shown}"


def test_after_the_last_record_no_remaining_time_is_shown():
    state = RunState("run", {"realm": 40}, stage="realm")
    state.add(record(20, pieces_per_second=1.0, eta_s=90.0))
    assert "90 s left" in text_of(state, 80)
    state.add(record(40, pieces_per_second=1.0, mfu=0.5))
    assert " left" not in text_of(state, 80)
    assert "MFU 50.0%" in text_of(state, 80)


def test_steps_that_a_resumed_run_repeats_are_shown_once():
    state = RunState("run", {"realm": 40}, stage="realm")
    for step in (5, 10, 15):
        state.add(record(step, loss=float(step)))
    state.add(record(10, loss=1.0))
    assert state.values("loss") == [5.0, 10.0, 1.0]
    assert state.latest("loss") == (10, 1.0)


def test_an_index_becomes_older_while_the_stage_is_evaluated():
    state = RunState("run", {"realm": 40}, stage="realm", now=1300.0)
    aged = {"index_step": 1, "staleness_steps": 9, "index_age_s": 60.0}
    state.add(record(10, **aged) | {"time": 1000.0})
    assert "6 min old" in text_of(state, 80)
    state.add(record(10, held_out_loss=1.0) | {"time": 1290.0})
    assert "6 min old" in text_of(state, 80)


def test_stages_without_steps_or_without_data_are_omitted():
    config = tiny_config(stages__ict__steps=3, stages__qa__steps=4, stages__tagger__steps=5)
    assert stages_of(config.to_dict()) == {"ict": 3}
    config.stages.tagger.train_file = "train.conll"
    assert stages_of(config.to_dict()) == {"tagger": 5}
    with_questions = tiny_config(stages__qa__steps=4, corpus__questions="q.jsonl")
    assert stages_of(with_questions.to_dict()) == {"qa": 4}


def test_sparklines_have_the_shape_of_their_values():
    assert sparkline([0.0, 1.0, 2.0, 3.5, 7.0], 10) == "▁▂▃▅█"
    assert sparkline([3.0, 3.0], 10) == "▁▁"
    assert sparkline([float(n) for n in range(100)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0], 10) == sparkline([1.0, 2.0], 1) == ""
    assert sparkline([1.0, float("inf"), 2.0], 10) == "▁█"


def test_live_view_shows_steps_records_and_the_builder(run):
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True)
    live = LiveView(RunState("run", {"realm": 40}, stage="realm"), run, console)
    live.set_step(17)
    live.write(record(16, loss=0.625))
    live.close()
    shown = Console(width=80).render_str(out.getvalue()).plain
    assert "17/40" in shown and "0.625" in shown
    assert "embedding" in shown and "20/80" in shown  # from the builder's heartbeat
    assert out.getvalue().count("\x1b[?25h") == 1  # the cursor is restored


def test_without_a_terminal_log_lines_are_written(run, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    writer = terminal_writer(run, tiny_config(stages__realm__steps=4), "realm", 0)
    assert isinstance(writer, Lines)
