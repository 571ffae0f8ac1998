"""Numbers, spans of time and records in few characters, for people."""

from typing import Any

_APART = {
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
    """A figure with three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def count(value: float | int) -> str:
    """A whole number in at most six characters, roughly where it is large: 12,345 or 1.23M."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if value < 100_000 else f"{value / 1e3:.0f}k"


def things(number: int, name: str) -> str:
    """1 passage, 2,000 passages."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def span(seconds: float | int) -> str:
    """A span of time in its largest fitting unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def line(record: dict[str, Any], steps: int | None) -> str:
    """A record as one line of a log."""
    of = "" if steps is None else f"/{steps}"
    left = f" ({span(record['eta_s'])} left)" if "eta_s" in record else ""
    figures = [(name, value) for name, value in record.items() if name not in _APART]
    figures.sort(key=lambda figure: "loss" not in figure[0])
    parts = [f"{name} {short(value)}" for name, value in figures]
    if "pieces_per_second" in record:
        parts += [f"{count(record['pieces_per_second'])} real pieces/s"]
    if "mfu" in record:
        parts += [f"MFU {record['mfu']:.1%}"]
    if "index_step" in record:
        age = f", {span(record['index_age_s'])}" if record.get("index_age_s") is not None else ""
        parts += [f"index of step {record['index_step']}, {record['staleness_steps']} steps{age}"]
    if "seconds" in record:
        parts += [f"{span(record['seconds'])} in all"]
    return f"{record['stage']} {record['step']}{of}{left}: {'  '.join(parts)}"
