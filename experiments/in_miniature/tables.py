"""Runs to `miniature.json`, and from that the tables of docs/results.md and its plots."""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from xml.etree import ElementTree

from scipy.stats import t as student

from in_miniature.rows import PAPER, ROWS
from realm_jax.report.charts import Line, line_chart
from realm_jax.report.html import element

FIGURES = ("recall_at_5", "exact_match", "retrieval_utility")
FURTHER = ("own_recall_at_5", "reader_oracle", "recall_at_5_tuned")
SETS = {
    "nq_dev": "NQ dev",
    "nq_held_out": "NQ held out",
    "webquestions": "WebQuestions",
    "trec": "CuratedTREC",
    "squad": "SQuAD",
    "nq_dev_said": "NQ dev, named or not",
}
# Table 2 of the paper: exact match and recall@5 on NQ dev, in per cent.
OF_THE_PAPER = {
    "realm": (38.2, 38.5),
    "retriever_only": (37.4, 38.5),
    "encoder_only": (35.3, 13.9),
    "ict_only": (31.3, 13.9),
    "random_token": (32.3, 24.2),
    "random_span": (35.3, 26.1),
    "stale_30x": (28.7, 15.1),
}
_CONFIDENCE = 0.95
_PLOTS = {
    "utility": ("Retrieval utility of held-out sentences", "nats per masked piece", "curve"),
    "own_recall": ("Beginning of a sentence's own article among the first 5", "share", "own_curve"),
}
_STYLE = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #444 } .end { text-anchor: end }
.middle { text-anchor: middle } .grid { stroke: #ddd } .axis { stroke: #888 } .line { fill: none;
stroke-width: 1.8 } .c1 { stroke: #1f5fbf } .c2 { stroke: #c2410c } .c3 { stroke: #15803d }
.c4 { stroke: #7c3aed } .c5 { stroke: #a16207 }
"""


def assembled(folder: Path) -> dict[str, Any]:
    """`miniature.json` of the runs whose `ROW_SEED.json` lie in `folder`."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*_*.json"))]
    rows: dict[str, Any] = {}
    for name in ROWS:
        own = sorted((run for run in runs if run["row"] == name), key=lambda run: run["seed"])
        if own:
            rows[name] = {figure: interval([run[figure] for run in own]) for figure in FIGURES}
            rows[name] |= {figure: interval([run[figure] for run in own]) for figure in FURTHER}
            rows[name]["recall_of"] = {
                one: interval([run["recall_of"][one] for run in own]) for one in own[0]["recall_of"]
            }
            for _, _, curve in _PLOTS.values():
                rows[name][curve] = _mean_curve([run[curve] for run in own])
            rows[name]["minutes"] = interval([_minutes(run) for run in own])
    counts = folder / "counts.json"
    questions = json.loads(counts.read_text()) if counts.exists() else {}
    found = {"rows": rows, "questions": questions}
    shown = [run["examples"] for run in runs if run["row"] == "realm" and "examples" in run]
    return {**found, "examples": shown[0]} if shown else found


def interval(values: list[float]) -> dict[str, Any]:
    """Mean and 95 % interval (Student's t over the seeds); no interval of one value."""
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": _short(mean), "low": None, "high": None, "seeds": values}
    quantile = student.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    half = float(quantile) * stdev(values) / len(values) ** 0.5
    return {
        "mean": _short(mean),
        "low": _short(mean - half),
        "high": _short(mean + half),
        "seeds": values,
    }


def _short(value: float) -> float:
    return round(value, 6)


def _minutes(run: dict[str, Any]) -> float:
    return float(sum(run["seconds"].get(stage, 0.0) for stage in ("realm", "qa")) / 60)


def _mean_curve(curves: list[list[tuple[float, float]]]) -> list[list[float]]:
    """Means over the seeds, at the steps that all of them have."""
    found = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return [[step, _short(fmean(curve[step] for curve in found))] for step in steps]


def tables(made: dict[str, Any]) -> dict[str, str]:
    """Markdown of each table of docs/results.md, by name."""
    return {
        "rows": _rows_table(made),
        "sets": _sets_table(made),
        "questions": _questions(made),
        "examples": _examples(made.get("examples")),
    }


def _rows_table(made: dict[str, Any]) -> str:
    head = (
        "row",
        "recall@5",
        "paper",
        "exact match",
        "paper",
        "retrieval utility",
        "minutes",
        "seeds",
    )
    lines = []
    for name in ROWS:
        row = made["rows"].get(name)
        exact, recall = OF_THE_PAPER.get(name, (None, None))
        if row or name in PAPER:
            lines.append(
                (
                    f"`{name}`",
                    _percent(row, "recall_at_5"),
                    _or_dash(recall),
                    _percent(row, "exact_match"),
                    _or_dash(exact),
                    _nats(row, "retrieval_utility"),
                    f"{row['minutes']['mean']:.1f}" if row else "–",
                    str(len(row["recall_at_5"]["seeds"])) if row else "not run",
                )
            )
    return _markdown(head, lines)


def _sets_table(made: dict[str, Any]) -> str:
    head = ("row", *SETS.values(), "own article", "after fine-tuning", "reader could")
    lines = []
    for name, row in made["rows"].items():
        sets = [_percent(row["recall_of"], one) for one in SETS]
        lines.append((f"`{name}`", *sets, *(_percent(row, further) for further in FURTHER[:1])))
        lines[-1] += (_percent(row, "recall_at_5_tuned"), _percent(row, "reader_oracle"))
    return _markdown(head, lines)


def _questions(made: dict[str, Any]) -> str:
    head = ("questions", "read", "not in NQ dev", "said in Z", "kept")
    lines = [
        (name, *(f"{counts[part]:,}" for part in ("read", "not_in_dev", "said", "kept")))
        for name, counts in made["questions"].items()
    ]
    return _markdown(head, lines)


def _examples(made: dict[str, Any] | None) -> str:
    head = ("sentence", "hidden", "p(y|x)", "without retrieval", "likeliest passage")
    if made is None:
        return _markdown(head, [])
    lines = [
        (
            one["sentence"].replace("|", "/"),
            one["hidden"].replace("|", "/"),
            f"{one['with']:.1e}",
            f"{one['without']:.1e}",
            one["passage"].replace("|", "/") or "none",
        )
        for one in (*made["rises"], *made["falls"])
    ]
    said = (
        f"Of {made['sentences']} held-out sentences, retrieval makes what was hidden a hundred "
        f"times likelier in {made['much_likelier']:.1%}, and a hundred times rarer in "
        f"{made['much_rarer']:.1%}."
    )
    return f"{said}\n\n{_markdown(head, lines)}"


def _percent(row: dict[str, Any] | None, figure: str) -> str:
    return "–" if row is None else _with_interval(row[figure], 100, ".1f")


def _nats(row: dict[str, Any] | None, figure: str) -> str:
    return "–" if row is None else _with_interval(row[figure], 1, ".3f")


def _with_interval(one: dict[str, Any], scale: float, form: str) -> str:
    said = f"{scale * one['mean']:{form}}"
    if one["low"] is None:
        return said
    return f"{said} ({scale * one['low']:{form}} to {scale * one['high']:{form}})"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else str(value)


def _markdown(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    rule = tuple("---" for _ in head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def with_tables(page: str, made: dict[str, Any]) -> str:
    """The page with what stands between `<!-- table NAME -->` and `<!-- end -->` made anew."""
    for name, content in tables(made).items():
        between = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = between.sub(partial(_filled, content), page)
    return page


def _filled(content: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{content}\n\n{found[2]}"


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
