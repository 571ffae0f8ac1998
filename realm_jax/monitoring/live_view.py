"""The picture of a run as a terminal shows it: a panel of lines that fit its width."""

import itertools
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from realm_jax.monitoring.format import count, short, span
from realm_jax.monitoring.run_state import Picture

_BLOCKS = "▁▂▃▄▅▆▇█"
_LABEL, _VALUE = 20, 14  # columns


class View:
    """A picture for `rich` to print; as wide as the terminal, never more than twenty lines."""

    def __init__(self, picture: Picture):
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        picture, inner = self._picture, options.max_width - 4
        rest = inner - _LABEL - _VALUE - 2
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=_LABEL, style="dim", no_wrap=True)
        grid.add_column(width=_VALUE, justify="right", no_wrap=True)
        grid.add_column(width=rest, no_wrap=True, overflow="ellipsis")
        for label, value, more in _rows(picture, rest, ascii_only=options.ascii_only):
            grid.add_row(label, value, more)
        title = Text.assemble(("realm", "bold"), "  ", picture.name)
        yield Panel(grid, title=title, title_align="left", border_style="dim", padding=(0, 1))


def _rows(picture: Picture, rest: int, *, ascii_only: bool) -> list[tuple[Any, Any, Any]]:
    rows: list[tuple[Any, Any, Any]] = [_stage_row(picture, rest)]
    for figure, label, unit in _figures(picture):
        found = picture.newest(figure)
        if found is not None:
            step, value = found
            course = "" if ascii_only else sparkline(picture.course(figure), min(rest // 2, 40))
            when = f" at step {step}" if figure.startswith("held_out") else ""
            rows.append((label, Text(short(value), "bold"), Text(f"{course} {unit}{when}".strip())))
    return [*rows, *_speed_rows(picture), *_index_rows(picture), *_builder_rows(picture, rest)]


def _stage_row(picture: Picture, rest: int) -> tuple[Any, Any, Any]:
    names = list(picture.stages)
    here = names.index(picture.stage) if picture.stage in names else -1
    line = Text()
    for place, name in enumerate(names):
        over = picture.stage == "done" or place < here
        style = "green" if over else "bold cyan" if place == here else "dim"
        line.append(f"{name}{' ok' if over else ''}  ", style)
    if here < 0:
        return "stage", Text(picture.stage, "bold"), line
    steps = picture.stages[picture.stage]
    bar = Table.grid(padding=(0, 1))
    bar.add_row(line, ProgressBar(steps, min(picture.step, steps), width=max(rest // 4, 8)))
    return "stage, step", Text(f"{count(picture.step)}/{count(steps)}", "bold"), bar


def _figures(picture: Picture) -> list[tuple[str, str, str]]:
    """Figure, label and unit of what is worth a line, if it was measured."""
    recalls = {name for record in picture.records for name in record if "_recall_at_" in name}
    found = [
        ("loss", "loss", "nats"),
        ("accuracy", "accuracy", "of the batch"),
        ("retrieval_utility", "retrieval utility", "nats per piece"),
        ("held_out_retrieval_utility", "  on held-out text", "nats per piece"),
        ("p_null", "p(null)", "on no passage at all"),
    ]
    found += [(name, f"recall@{name.rsplit('_', 1)[1]}", "held out,") for name in sorted(recalls)]
    return [*found, ("held_out_fb1", "F1", "held out,")]


def _speed_rows(picture: Picture) -> list[tuple[Any, Any, Any]]:
    measured = [record for record in picture.records if "pieces_per_second" in record]
    if not measured:
        return []
    newest = measured[-1]
    share = f"MFU {newest['mfu']:.1%}" if "mfu" in newest else "MFU not known here"
    left = f", {span(newest['eta_s'])} left" if "eta_s" in newest else ""
    pieces = Text(count(newest["pieces_per_second"]), "bold")
    return [("real pieces per s", pieces, Text(share + left))]


def _index_rows(picture: Picture) -> list[tuple[Any, Any, Any]]:
    index, age = picture.newest("index_step"), picture.newest("index_age_s")
    if index is None:
        return []
    behind = max(picture.step - index[1], 0)
    old = f"{count(behind)} steps"
    if age is not None:
        since = picture.records[-1]["time"]
        old += f", {span(age[1] + max(picture.now - since, 0.0))}"
    return [("index", Text(f"of step {count(index[1])}", "bold"), Text(f"{old} old"))]


def _builder_rows(picture: Picture, rest: int) -> list[tuple[Any, Any, Any]]:
    builder, refresh = picture.builder, picture.refresh
    if not builder.get("state"):
        return []
    more: Any = ""
    if builder.get("done") is not None and builder.get("total"):
        left = builder.get("eta_s")
        text = f"{count(builder['done'])}/{count(builder['total'])}"
        text += "" if left is None else f", {span(left)} left"
        more = Table.grid(padding=(0, 1))
        more.add_row(ProgressBar(builder["total"], builder["done"], width=max(rest // 4, 8)), text)
    rows: list[tuple[Any, Any, Any]] = [("builder", Text(builder["state"], "bold"), more)]
    if refresh:
        text = f"in {span(refresh['seconds'])}, recall@10 {refresh['recall']:.3f}"
        rows += [("last index built", f"of step {count(refresh['step'])}", Text(text))]
    return rows


def sparkline(values: list[float], width: int) -> str:
    """The course of a figure in block characters; the newest at the right."""
    finite = [value for value in values if abs(value) < float("inf")]
    if len(finite) < 2 or width < 2:
        return ""
    size = min(width, len(finite))
    edges = [round(place * len(finite) / size) for place in range(size + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)
