"""The plots of docs/results.md, from `evidence.json`: differences and their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from table2_small.rows_plot import dot, rows_plot

from evidence_runs.aggregate import Difference
from realm_jax.report.html import Element, element
from realm_jax.report.scale import Scale

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
.c0 { fill: #1f5fbf; stroke: #1f5fbf; stroke-width: 2 }
.c1 { fill: #fff; stroke: #c2410c; stroke-width: 2 }
"""


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
    """A row of dots with intervals for each line, one dot for each series."""

    def marks(row: int, across: Scale, middle: float) -> list[Element]:
        found = []
        for number, of in enumerate(lines[row].differences):
            if of is None:
                continue
            y = middle + 10 * (number - 0.5 * (len(series) - 1))
            low, high = across(of["low"]), across(of["high"])
            found.append(element("line", x1=low, x2=high, y1=y, y2=y, class_=f"c{number}"))
            found.append(dot(number, across(of["mean"]), y))
        return found

    ends = [of[end] for line in lines for of in line.differences if of for end in ("low", "high")]
    return rows_plot(title, _STYLE, series, [line.label for line in lines], ends, marks)
