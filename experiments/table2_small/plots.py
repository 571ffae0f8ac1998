"""The plots of docs/results_tables.md, from `table2.json`."""

from itertools import chain
from statistics import fmean
from typing import Any

from realm_jax.report.charts import Line, line_chart
from realm_jax.report.html import Element, element
from realm_jax.report.scale import Scale
from table2_small.rows_plot import dot, rows_plot, svg_text
from table2_small.tables import PAPER_VALUES

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
_ROWS_STYLE = """
.c0 { fill: #1f5fbf; fill-opacity: 0.5 } .mean { stroke: #1f5fbf; stroke-width: 1.8 }
.c1 { fill: none; stroke: #c2410c; stroke-width: 1.8 }
"""


def plots(made: dict[str, Any]) -> dict[str, str]:
    """File name -> SVG of each plot that has data."""
    found = {}
    for name, (title, unit, curve) in _PLOTS.items():
        lines = [
            Line(row, [(float(x), float(y)) for x, y in made["rows"][row][curve]])
            for row in ("realm", "random_span", "random_token", "stale_30x")
            if row in made["rows"]
        ]
        figure = line_chart(title, unit, lines, zero=True)
        if figure is not None:
            found[f"table2_{name}.svg"] = _standalone(figure, title, unit, lines)
    if made["rows"]:
        found["table2_rows.svg"] = _recall_of_rows(made["rows"])
    return found


def _recall_of_rows(rows: dict[str, Any]) -> str:
    """Recall@5 of every row: seeds, mean, and the value of the paper."""
    own = {
        name: [100 * one for one in row["recall_of"]["all"]["seeds"]] for name, row in rows.items()
    }
    papers = {name: PAPER_VALUES[name][1] for name in own if name in PAPER_VALUES}

    def marks(row: int, across: Scale, y: float) -> list[Element]:
        name = list(own)[row]
        mean = across(fmean(own[name]))
        found = [element("line", x1=mean, x2=mean, y1=y - 8, y2=y + 8, class_="mean")]
        found += [dot(0, across(one), y) for one in own[name]]
        if name in papers:
            found.append(dot(1, across(papers[name]), y))
        return found

    series = ["a seed, all five sets of questions", "the paper, NQ"]
    values = [*chain.from_iterable(own.values()), *papers.values()]
    title = "Recall@5 before fine-tuning, per cent"
    return rows_plot(title, _ROWS_STYLE, series, list(own), values, marks)


def _standalone(figure: Element, title: str, unit: str, lines: list[Line]) -> str:
    """A chart as a standalone SVG, with title and legend."""
    drawing = figure.find("svg")
    assert drawing is not None
    left, top, width, height = map(float, drawing.attrib["viewBox"].split())
    head = 22.0 + 16.0 * len(lines)
    drawing.set("viewBox", f"{left:g} {top - head:g} {width:g} {height + head:g}")
    paper = element("rect", x=left, y=top - head, width=width, height=height + head, fill="#fff")
    keys = [element("text", f"{title}, {unit}", x=12, y=top - head + 16)]
    for number, line in enumerate(lines, 1):
        y = top - head + 18 + 16 * number
        keys.append(element("line", x1=12, x2=32, y1=y - 4, y2=y - 4, class_=f"line c{number}"))
        keys.append(element("text", line.label, x=38, y=y))
    for place, child in enumerate((element("style", _STYLE), paper, *keys)):
        drawing.insert(place + 1, child)
    return svg_text(drawing)
