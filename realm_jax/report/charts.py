"""Draws charts as SVG elements; the style sheet of the page sets their colours, light and dark."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from realm_jax.report.html import Element, element
from realm_jax.report.scale import Scale, scale, tick_text

_WIDTH, _HEIGHT = 460.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 10.0, 34.0
_MOST_POINTS = 400  # of a line; longer lines are averaged over neighbouring points
_MOST_MARKS = 60  # vertical lines of a chart; none are drawn if there are more
_BAR, _BAR_LABEL, _BAR_VALUE = 26.0, 146.0, 54.0


@dataclass(frozen=True)
class Line:
    """A series of (step, value) points; `dots` draws each point."""

    label: str
    points: list[tuple[float, float]]
    dots: bool = False


def line_chart(
    title: str,
    unit: str,
    lines: list[Line],
    *,
    note: str = "",
    marks: Iterable[float] = (),
    last: float | None = None,
    zero: bool = False,
) -> Element | None:
    """Draws series over training steps; returns None if no series has a point.

    Args:
      title: of the chart.
      unit: of the values.
      lines: the series.
      note: a sentence on how to read the chart.
      marks: steps with a thin vertical line.
      last: last step of the axis; None is the last point.
      zero: whether the vertical axis must include 0.
    """
    lines = [Line(one.label, _finite(one.points), one.dots) for one in lines]
    lines = [one for one in lines if one.points]
    if not lines:
        return None
    points = [point for one in lines for point in one.points]
    ends = [min(0.0, *(p[0] for p in points)), max(p[0] for p in points)]
    ends[1] = max(ends[1], last or 0.0)
    across = scale(ends, _LEFT, _WIDTH - _RIGHT, count=6, zero=False)
    across = Scale(ends[0], ends[1] or 1.0, across.first, across.last, across.ticks)
    up = scale([p[1] for p in points], _HEIGHT - _BOTTOM, _TOP, count=5, zero=zero)
    swaps = sorted(set(marks))
    drawing = element(
        "svg",
        element("title", f"{title}, {unit}, by step"),
        _axes(across, up),
        [_mark(across(step)) for step in swaps] if len(swaps) <= _MOST_MARKS else None,
        [_line(one, colour, across, up) for colour, one in enumerate(lines, 1)],
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
    )
    legend = [_key(one.label, f"c{colour}") for colour, one in enumerate(lines, 1)]
    if swaps and len(swaps) <= _MOST_MARKS:
        legend += [_key("new index swapped in", "swap")]
    return _figure(title, unit, legend, drawing, note)


def bar_chart(
    title: str, unit: str, bars: list[tuple[str, float, str]], *, note: str = "", most: float = 0.0
) -> Element | None:
    """Draws horizontal bars; returns None without bars.

    Args:
      title: of the chart.
      unit: of the values.
      bars: (label, value, formatted value) from top to bottom; values may be negative.
      note: a sentence on how to read the chart.
      most: value of a bar of full width; 0 is the largest value.
    """
    bars = [bar for bar in bars if math.isfinite(bar[1])]
    if not bars:
        return None
    values = [value for _, value, _ in bars]
    low, high = min(0.0, *values), max(most, *values, 0.0)
    room = _WIDTH - _BAR_LABEL - _BAR_VALUE
    per = room / ((high - low) or 1.0)
    zero = _BAR_LABEL - low * per
    rows = []
    for number, (label, value, text) in enumerate(bars):
        y = number * _BAR + 4
        x, width = (zero, value * per) if value >= 0 else (zero + value * per, -value * per)
        rows += [
            element("text", label, x=_BAR_LABEL - 8, y=y + 13, class_="label end"),
            element(
                "rect", x=round(x, 1), y=y, width=round(max(width, 1.0), 1), height=18, class_="bar"
            ),
            element("text", text, x=round(max(x + width, zero) + 6, 1), y=y + 13, class_="label"),
        ]
    height = len(bars) * _BAR + 6
    rows += [element("line", x1=zero, x2=zero, y1=0, y2=height, class_="axis")]
    title_text = element("title", f"{title}, {unit}")
    drawing = element("svg", title_text, rows, viewBox=f"0 0 {_WIDTH} {height}", role="img")
    return _figure(title, unit, [], drawing, note)


def _figure(title: str, unit: str, legend: list[Element], drawing: Element, note: str) -> Element:
    head = element("figcaption", element("b", title), element("span", unit, class_="unit"))
    keys = element("div", legend, class_="legend") if legend else None
    return element(
        "figure", head, keys, drawing, element("p", note, class_="note") if note else None
    )


def _key(label: str, kind: str) -> Element:
    return element("span", element("i", class_=f"key {kind}"), label)


def _axes(across: Scale, up: Scale) -> list[Element]:
    bottom = _HEIGHT - _BOTTOM
    found = []
    for tick in up.ticks:
        y = up(tick)
        found += [
            element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid"),
            element("text", tick_text(tick, up.ticks), x=_LEFT - 8, y=y + 4, class_="label end"),
        ]
    for tick in across.ticks:
        if across.low <= tick <= across.high:
            text = tick_text(tick, across.ticks)
            x = across(tick)
            found += [element("text", text, x=x, y=bottom + 16, class_="label middle")]
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    name = element("text", "training step", x=middle, y=_HEIGHT - 3, class_="label middle muted")
    axis = element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=bottom, y2=bottom, class_="axis")
    return [*found, name, axis]


def _mark(x: float) -> Element:
    return element("line", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM, class_="swap")


def _line(one: Line, colour: int, across: Scale, up: Scale) -> list[Element]:
    points = _downsample(one.points)
    path = "M" + "L".join(f"{across(x)},{up(y)}" for x, y in points)
    found = [element("path", d=path, class_=f"line c{colour}")]
    if (one.dots and len(points) <= 60) or len(points) == 1:
        found += [
            element(
                "circle",
                element("title", f"step {x:,.0f}: {y:.4g}"),
                cx=across(x),
                cy=up(y),
                r=3,
                class_=f"dot c{colour}",
            )
            for x, y in points
        ]
    return found


def _finite(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _downsample(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Averages neighbouring points until at most `_MOST_POINTS` are left."""
    size = math.ceil(len(points) / _MOST_POINTS)
    if size == 1:
        return points
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]
