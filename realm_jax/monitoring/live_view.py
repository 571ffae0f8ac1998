"""Draws the state of a run as a terminal panel that fits its width."""

import itertools
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from realm_jax.monitoring.format import count, short, span
from realm_jax.monitoring.run_state import RunState

_BLOCKS = "▁▂▃▄▅▆▇█"
_LABEL, _VALUE = 20, 14  # columns

Row = tuple[Any, Any, Any]  # label, value, details


class View:
    """A `rich` renderable of a run's state: as wide as the terminal, at most 20 lines."""

    def __init__(self, state: RunState):
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state, inner = self._state, options.max_width - 4
        rest = inner - _LABEL - _VALUE - 2
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=_LABEL, style="dim", no_wrap=True)
        grid.add_column(width=_VALUE, justify="right", no_wrap=True)
        grid.add_column(width=rest, no_wrap=True, overflow="ellipsis")
        for label, value, details in _rows(state, rest, ascii_only=options.ascii_only):
            grid.add_row(label, value, details)
        title = Text.assemble(("realm", "bold"), "  ", state.name)
        yield Panel(grid, title=title, title_align="left", border_style="dim", padding=(0, 1))


def _rows(state: RunState, rest: int, *, ascii_only: bool) -> list[Row]:
    rows: list[Row] = [_stage_row(state, rest)]
    for metric, label, unit in _metrics(state):
        latest = state.latest(metric)
        if latest is not None:
            step, value = latest
            curve = "" if ascii_only else sparkline(state.values(metric), min(rest // 2, 40))
            when = f" at step {step}" if metric.startswith("held_out") else ""
            rows.append((label, Text(short(value), "bold"), Text(f"{curve} {unit}{when}".strip())))
    return [*rows, *_speed_rows(state), *_index_rows(state), *_builder_rows(state, rest)]


def _stage_row(state: RunState, rest: int) -> Row:
    names = list(state.stages)
    current = names.index(state.stage) if state.stage in names else -1
    line = Text()
    for number, name in enumerate(names):
        finished = state.stage == "done" or number < current
        style = "green" if finished else "bold cyan" if number == current else "dim"
        line.append(f"{name}{' ok' if finished else ''}  ", style)
    if current < 0:
        return "stage", Text(state.stage, "bold"), line
    steps = state.stages[state.stage]
    bar = Table.grid(padding=(0, 1))
    bar.add_row(line, ProgressBar(steps, min(state.step, steps), width=max(rest // 4, 8)))
    return "stage, step", Text(f"{count(state.step)}/{count(steps)}", "bold"), bar


def _metrics(state: RunState) -> list[tuple[str, str, str]]:
    """Name in the log, label and unit of each metric that gets a row if it was measured."""
    recalls = {name for record in state.records for name in record if "_recall_at_" in name}
    metrics = [
        ("loss", "loss", "nats"),
        ("accuracy", "accuracy", "of the batch"),
        ("retrieval_utility", "retrieval utility", "nats per word piece"),
        ("held_out_retrieval_utility", "  on held-out text", "nats per word piece"),
        ("p_null", "p(null)", "of the null passage"),
    ]
    metrics += [(name, f"recall@{name.rsplit('_', 1)[1]}", "held out,") for name in sorted(recalls)]
    return [*metrics, ("held_out_fb1", "F1", "held out,")]


def _speed_rows(state: RunState) -> list[Row]:
    measured = [record for record in state.records if "pieces_per_second" in record]
    if not measured:
        return []
    newest = measured[-1]
    mfu = f"MFU {newest['mfu']:.1%}" if "mfu" in newest else "MFU unknown on this device"
    remaining = f", {span(newest['eta_s'])} left" if "eta_s" in newest else ""
    pieces = Text(count(newest["pieces_per_second"]), "bold")
    return [("word pieces per s", pieces, Text(mfu + remaining))]


def _index_rows(state: RunState) -> list[Row]:
    index, stale = state.latest("index_step"), state.latest("staleness_steps")
    if index is None or stale is None:
        return []
    staleness = max(stale[1] + state.step - stale[0], 0)
    text = f"{count(staleness)} steps"
    aged = [record for record in state.records if record.get("index_age_s") is not None]
    if aged:
        age = aged[-1]["index_age_s"] + max(state.now - aged[-1]["time"], 0.0)
        text += f", {span(age)}"
    return [("index", Text(f"of step {count(index[1])}", "bold"), Text(f"{text} old"))]


def _builder_rows(state: RunState, rest: int) -> list[Row]:
    builder, refresh = state.builder, state.refresh
    if not builder.get("state"):
        return []
    details: Any = ""
    if builder.get("done") is not None and builder.get("total"):
        eta = builder.get("eta_s")
        text = f"{count(builder['done'])}/{count(builder['total'])}"
        text += "" if eta is None else f", {span(eta)} left"
        details = Table.grid(padding=(0, 1))
        bar = ProgressBar(builder["total"], builder["done"], width=max(rest // 4, 8))
        details.add_row(bar, text)
    rows: list[Row] = [("builder", Text(builder["state"], "bold"), details)]
    if refresh:
        text = f"in {span(refresh['seconds'])}, recall@10 {refresh['recall']:.3f}"
        rows += [("last index built", f"of step {count(refresh['step'])}", Text(text))]
    return rows


def sparkline(values: list[float], width: int) -> str:
    """Draws a curve in block characters, newest value at the right; "" for fewer than two."""
    finite = [value for value in values if abs(value) < float("inf")]
    if len(finite) < 2 or width < 2:
        return ""
    size = min(width, len(finite))
    edges = [round(number * len(finite) / size) for number in range(size + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)
