"""A plot of labelled rows over one horizontal scale, as a standalone SVG."""

from collections.abc import Callable, Sequence
from xml.etree import ElementTree

from realm_jax.report.html import Element, element
from realm_jax.report.scale import Scale, scale, tick_text

_STYLE = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #444 } .end { text-anchor: end }
.middle { text-anchor: middle } .grid { stroke: #ddd } .zero { stroke: #444 }
"""
_TOP, _STEP, _LEFT, _RIGHT, _WIDTH = 62.0, 26.0, 170.0, 620.0, 640

Marks = Callable[[int, Scale, float], list[Element]]


def rows_plot(
    title: str,
    style: str,
    series: Sequence[str],
    labels: Sequence[str],
    values: list[float],
    marks: Marks,
) -> str:
    """Draws a row of marks for each label, from top to bottom.

    Args:
      title: of the plot.
      style: CSS of the marks; `dot` has the class `c0` for the first series, and so on.
      series: meaning of each series, for the key.
      labels: of the rows.
      values: that the scale must cover; it covers 0 too.
      marks: marks(n, scale, y) draws row n at height y.
    """
    bottom = _TOP + _STEP * len(labels)
    across = scale(values, _LEFT, _RIGHT, count=8, zero=True)
    parts = [
        element("style", _STYLE + style),
        element("rect", width=_WIDTH, height=bottom + 24, fill="#fff"),
        element("text", title, x=12, y=18),
    ]
    for number, name in enumerate(series):
        left = 12 + 300 * number
        parts += [dot(number, left + 4, 34), element("text", name, x=left + 16, y=38)]
    for tick in across.ticks:
        x, text = across(tick), tick_text(tick, across.ticks)
        kind = "zero" if text == "0" else "grid"
        parts.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_=kind))
        parts.append(element("text", text, x=x, y=bottom + 16, class_="middle"))
    for number, label in enumerate(labels):
        y = _TOP + _STEP * (number + 0.5)
        parts.append(element("text", label, x=_LEFT - 8, y=y + 4, class_="end"))
        parts += marks(number, across, y)
    drawing = element("svg", parts, viewBox=f"0 0 {_WIDTH} {bottom + 24:g}")
    return svg_text(drawing)


def dot(series: int, x: float, y: float) -> Element:
    """A mark at a point, of the class `c0` for series 0, and so on."""
    return element("circle", cx=x, cy=y, r=4, class_=f"c{series}")


def svg_text(drawing: Element) -> str:
    """The content of an SVG file."""
    drawing.set("xmlns", "http://www.w3.org/2000/svg")
    return ElementTree.tostring(drawing, encoding="unicode") + "\n"
