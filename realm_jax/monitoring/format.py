"""Formats numbers, durations and log records as short text."""

from typing import Any

_FORMATTED_SEPARATELY = {
    "stage",
    "step",
    "time",
    "eta_s",
    "seconds",
    "pieces_per_second",
    "steps_per_second",
    "mfu",
    "index_step",
    "staleness_steps",
    "index_age_s",
}


def short(value: Any) -> str:
    """Formats a float with three significant digits; other values as they are."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def count(value: float | int) -> str:
    """Formats a whole number in at most six characters, rounded if it is large: 12,345 or 1.23M."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if value < 100_000 else f"{value / 1e3:.0f}k"


def things(number: int, name: str) -> str:
    """Formats a number with its noun: 1 passage, 2,000 passages."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def span(seconds: float | int) -> str:
    """Formats a duration in its largest fitting unit: 90 s, 2 min, 3 h, 4 d."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def line(record: dict[str, Any], steps: int | None) -> str:
    """Formats a record as one log line; `steps` is the number of steps of its stage, if known."""
    total = "" if steps is None else f"/{steps}"
    remaining = f" ({span(record['eta_s'])} left)" if "eta_s" in record else ""
    metrics = [item for item in record.items() if item[0] not in _FORMATTED_SEPARATELY]
    metrics.sort(key=lambda metric: "loss" not in metric[0])
    parts = [f"{name} {short(value)}" for name, value in metrics]
    if "pieces_per_second" in record:
        parts += [f"{count(record['pieces_per_second'])} word pieces/s"]
    if "mfu" in record:
        parts += [f"MFU {record['mfu']:.1%}"]
    if "index_step" in record:
        age = f", {span(record['index_age_s'])}" if record.get("index_age_s") is not None else ""
        staleness = f"{record['staleness_steps']} steps{age} old"
        parts += [f"index of step {record['index_step']} ({staleness})"]
    if "seconds" in record:
        parts += [f"{span(record['seconds'])} in total"]
    return f"{record['stage']} {record['step']}{total}{remaining}: {'  '.join(parts)}"
