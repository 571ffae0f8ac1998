"""The plots of docs/results.md, made of `miniature.json`."""

from typing import Any
from xml.etree import ElementTree

from realm_jax.report.charts import Line, line_chart
from realm_jax.report.html import element

_PLOTS = {  # name: title, unit, curve of a row
    "utility": ("Retrieval utility of held-out sentences", "nats per masked piece", "curve"),
    "own_recall": ("Beginning of a sentence's own article among the first 5", "share", "own_curve"),
}
_STYLE = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #444 } .end { text-anchor: end }
.middle { text-anchor: middle } .grid { stroke: #ddd } .axis { stroke: #888 } .line { fill: none;
stroke-width: 1.8 } .c1 { stroke: #1f5fbf } .c2 { stroke: #c2410c } .c3 { stroke: #15803d }
.c4 { stroke: #7c3aed } .c5 { stroke: #a16207 }
"""


def plots(made: dict[str, Any]) -> dict[str, str]:
    """SVG of each plot, by the name of its file; none before there is a curve."""
    found = {}
    for name, (title, unit, curve) in _PLOTS.items():
        lines = [
            Line(row, [(float(x), float(y)) for x, y in made["rows"][row][curve]])
            for row in ("realm", "random_span", "random_token", "stale_30x")
            if row in made["rows"]
        ]
        figure = line_chart(title, unit, lines, zero=True)
        if figure is not None:
            found[f"miniature_{name}.svg"] = _standalone(figure, title, unit, lines)
    return found


def _standalone(figure: ElementTree.Element, title: str, unit: str, lines: list[Line]) -> str:
    """The drawing of a figure by itself, with its title and the names of its lines."""
    drawing = figure.find("svg")
    assert drawing is not None
    left, top, width, height = map(float, drawing.attrib["viewBox"].split())
    head = 22.0 + 16.0 * len(lines)
    drawing.set("viewBox", f"{left:g} {top - head:g} {width:g} {height + head:g}")
    drawing.set("xmlns", "http://www.w3.org/2000/svg")
    paper = element("rect", x=left, y=top - head, width=width, height=height + head, fill="#fff")
    keys = [element("text", f"{title}, {unit}", x=12, y=top - head + 16)]
    for number, line in enumerate(lines, 1):
        y = top - head + 18 + 16 * number
        keys.append(element("line", x1=12, x2=32, y1=y - 4, y2=y - 4, class_=f"line c{number}"))
        keys.append(element("text", line.label, x=38, y=y))
    for place, child in enumerate((element("style", _STYLE), paper, *keys)):
        drawing.insert(place + 1, child)
    return ElementTree.tostring(drawing, encoding="unicode") + "\n"
