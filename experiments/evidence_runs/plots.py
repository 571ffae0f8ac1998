"""The plots of docs/results.md, from `evidence.json`: differences and their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from evidence_runs.aggregate import Difference
from realm_jax.report.html import element
from realm_jax.report.scale import Scale, scale, tick_text

# Differences of the collections, and their name in the key of the plot.
GAINS = {
    "realm_over_start": "REALM minus the encoder as it comes",
    "realm_hybrid_over_start_hybrid": "the same, both with BM25",
}
# Rows that `realm` is compared with, from the worst.
ROWS = {
    "bm25": "BM25",
    "ict_only": "ICT",
    "start": "the encoder as it comes",
    "all_names": "one draw",
    "random_span": "random spans",
    "stale_30x": "a stale index",
}
SETS = {"nq_dev": "NQ dev", "triviaqa_dev": "TriviaQA dev"}
_STYLE = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #444 } .end { text-anchor: end }
.middle { text-anchor: middle } .grid { stroke: #ddd } .zero { stroke: #444 }
.c0 { fill: #1f5fbf; stroke: #1f5fbf } .c1 { fill: #fff; stroke: #c2410c }
.interval { stroke-width: 2 }
"""
_TOP, _STEP, _LEFT, _RIGHT, _WIDTH = 62.0, 26.0, 170.0, 620.0, 640


@dataclass(frozen=True)
class Line:
    """The differences of one line of a plot; None: not measured."""

    label: str
    differences: Sequence[Difference | None]


def plots(made: dict[str, Any]) -> dict[str, str]:
    """File name -> SVG of each plot that has data."""
    found = {}
    own = [Line(name, [of.get(one) for one in GAINS]) for name, of in made["differences"].items()]
    gains = [line for line in own if any(line.differences)]
    if gains:
        gains.append(Line("mean", [made["gain"].get(one) for one in GAINS]))
        title = "Difference of nDCG@10, with 95 % intervals"
        found["evidence_collections.svg"] = _drawing(title, list(GAINS.values()), gains)
    rows = []
    for name, label in ROWS.items():
        of = made["row_differences"].get(f"realm_over_{name}", {}).get("recall_at_5")
        if of is not None:
            rows.append(Line(label, [_points(of[one]) for one in SETS]))
    if rows:
        title = "Recall@5 of REALM minus that of other rows, in points, with 95 % intervals"
        found["evidence_rows.svg"] = _drawing(title, list(SETS.values()), rows)
    return found


def _points(figure: Difference) -> Difference:
    return {name: 100 * value for name, value in figure.items()}


def _drawing(title: str, series: Sequence[str], lines: Sequence[Line]) -> str:
    """Lines of dots with intervals, one dot for each series, as a standalone SVG."""
    bottom = _TOP + _STEP * len(lines)
    ends = [of[end] for line in lines for of in line.differences if of for end in ("low", "high")]
    across = scale(ends, _LEFT, _RIGHT, count=8, zero=True)
    parts = [
        element("style", _STYLE),
        element("rect", width=_WIDTH, height=bottom + 24, fill="#fff"),
        element("text", title, x=12, y=18),
    ]
    for number, name in enumerate(series):
        left = 12 + 300 * number
        parts += [_dot(number, left + 4, 34), element("text", name, x=left + 16, y=38)]
    for tick in across.ticks:
        x, kind = across(tick), "grid" if tick_text(tick, across.ticks) != "0" else "zero"
        parts.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_=kind))
        label = tick_text(tick, across.ticks)
        parts.append(element("text", label, x=x, y=bottom + 16, class_="middle"))
    for number, line in enumerate(lines):
        parts += _line(line, _TOP + _STEP * (number + 0.5), across)
    drawing = element("svg", *parts, viewBox=f"0 0 {_WIDTH} {bottom + 24:g}")
    drawing.set("xmlns", "http://www.w3.org/2000/svg")
    return ElementTree.tostring(drawing, encoding="unicode") + "\n"


def _line(line: Line, middle: float, across: Scale) -> list[ElementTree.Element]:
    parts = [element("text", line.label, x=_LEFT - 8, y=middle + 4, class_="end")]
    for number, of in enumerate(line.differences):
        if of is None:
            continue
        y = middle + 10 * (number - 0.5 * (len(line.differences) - 1))
        low, high = across(of["low"]), across(of["high"])
        parts.append(element("line", x1=low, x2=high, y1=y, y2=y, class_=f"c{number} interval"))
        parts.append(_dot(number, across(of["mean"]), y))
    return parts


def _dot(number: int, x: float, y: float) -> ElementTree.Element:
    return element("circle", cx=x, cy=y, r=4, class_=f"c{number} interval")
