"""Scales of a chart: maps values to coordinates and chooses round ticks."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps values in low .. high to coordinates first .. last; `ticks` are round values."""

    low: float
    high: float
    first: float
    last: float
    ticks: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        fraction = (value - self.low) / (self.high - self.low)
        return round(self.first + fraction * (self.last - self.first), 1)


def scale(values: list[float], first: float, last: float, *, count: int, zero: bool) -> Scale:
    """Makes a scale that covers all values.

    Args:
      values: finite numbers.
      first: coordinate of the low end.
      last: coordinate of the high end.
      count: approximate number of ticks.
      zero: whether the axis must include 0; it also includes 0 if the values are close to it.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if zero or 0 < low < high / 2:
        low = min(low, 0.0)
    if zero or (high < 0 and high > low / 2):
        high = max(high, 0.0)
    if high - low < 1e-12 * max(abs(high), 1e-300):
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if high else (0.0, 1.0)
    step = _round_step((high - low) / count)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    number = round((high - low) / step)
    return Scale(low, high, first, last, tuple(low + n * step for n in range(number + 1)))


def _round_step(wanted: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is at least `wanted`."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= wanted * (1 - 1e-9))


def tick_text(value: float, ticks: tuple[float, ...]) -> str:
    """Formats a tick with as many digits as distinguish the ticks."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(value) or 1.0
    if abs(value) < step / 1e6:
        return "0"
    if abs(value) >= 10_000 and step >= 1000:
        return f"{value / 1000:,.0f}k"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{digits}f}" if digits <= 4 else f"{value:.0e}"
