"""Aggregates runs: means over seeds, confidence intervals, differences between rows."""

import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from table2_small.questions import DEV, EVALUATED, SAID
from table2_small.rows import ROWS

METRICS = (
    "recall_at_5",
    "exact_match",
    "retrieval_utility",
    "own_recall_at_5",
    "exact_match_of_all",
    "reader_oracle",
    "recall_at_5_tuned",
)
OF_SETS = ("recall_of", "exact_match_of")
CURVES = ("curve", "own_curve")
TIMES = (DEV, "all")  # question sets for which the ratio of two rows' recall is computed
# Runs of one seed see the same sentences, and share a warm start unless their ICT differs.
PAIRS = (
    ("realm", "ict_only"),
    ("realm", "stale_30x"),
    ("realm", "random_span"),
    ("realm", "random_token"),
    ("random_span", "random_token"),
    ("realm", "ict_longer"),
    ("realm", "ict_longest"),
    ("realm_after_longer", "ict_longer"),
    ("realm_after_longer", "ict_longest"),
    ("candidates_16", "realm"),
    ("candidates_16", "random_span_16"),
    ("random_span_16", "random_token_16"),
    ("candidates_16", "random_span_more"),
    ("random_span_more", "random_token_more"),
    ("random_span_more", "ict_only"),
    ("random_token_more", "ict_only"),
    ("candidates_8", "realm"),
    ("rerank_64", "realm"),
    ("fresh_queries", "realm"),
    ("released_marginal", "realm"),
    ("no_null", "realm"),
    ("pdist", "realm"),
    ("float32", "realm"),
    ("realm_before_reading", "ict_before_reading"),
    ("realm_longer_before_reading", "ict_before_reading"),
    ("realm_longer_before_reading", "realm_before_reading"),
)
_CONFIDENCE = 0.95


def aggregate(folder: Path) -> dict[str, Any]:
    """The content of `table2.json`, from the files `ROW_SEED.json` in `folder`."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*_*.json"))]
    counts = folder / "counts.json"
    questions = json.loads(counts.read_text()) if counts.exists() else {}
    for run in runs:
        run["recall_of"]["all"] = _recall_of_all(run["recall_of"], questions)
    rows: dict[str, Any] = {}
    for name in ROWS:
        own = sorted((run for run in runs if run["row"] == name), key=lambda run: run["seed"])
        if own:
            rows[name] = {figure: interval([run[figure] for run in own]) for figure in METRICS}
            for figure in OF_SETS:
                rows[name][figure] = {
                    one: interval([run[figure][one] for run in own]) for one in own[0][figure]
                }
            for curve in CURVES:
                rows[name][curve] = _mean_curve([run[curve] for run in own])
            rows[name]["minutes"] = interval([_minutes(run) for run in own])
    found = {"rows": rows, "differences": _differences(runs), "questions": questions}
    shown = [run["examples"] for run in runs if run["row"] == "realm" and "examples" in run]
    return {**found, "examples": shown[0]} if shown else found


def interval(values: list[float]) -> dict[str, Any]:
    """Mean and 95 % confidence interval over seeds (Student's t); no interval for one seed."""
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
    """Means over the seeds, at the steps that all seeds have."""
    found = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return [[step, _short(fmean(curve[step] for curve in found))] for step in steps]


def _recall_of_all(recalls: dict[str, float], questions: dict[str, Any]) -> float:
    """Recall over the questions of all sets except `SAID`, which contains NQ dev."""
    weights = {name: questions[name]["kept"] for name in EVALUATED if name != SAID}
    # `sum` of floats differs between Python 3.11 and 3.12
    total = math.fsum(recalls[name] * kept for name, kept in weights.items())
    return total / sum(weights.values())


def _differences(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Paired differences of two rows over their common seeds."""
    by_seed = {(run["row"], run["seed"]): run for run in runs}
    found = []
    for one, other in PAIRS:
        seeds = sorted(seed for row, seed in by_seed if row == one and (other, seed) in by_seed)
        pairs = [(by_seed[one, seed], by_seed[other, seed]) for seed in seeds]
        if pairs:
            difference: dict[str, Any] = {
                figure: interval([a[figure] - b[figure] for a, b in pairs])
                for figure in ("own_recall_at_5", "retrieval_utility", "exact_match_of_all")
            }
            difference["recall_of"] = {
                name: interval([a["recall_of"][name] - b["recall_of"][name] for a, b in pairs])
                for name in pairs[0][0]["recall_of"]
            }
            difference["times"] = {name: _times(pairs, name) for name in TIMES}
            found.append({"row": one, "less": other, **difference})
    return found


def _times(pairs: list[tuple[dict[str, Any], dict[str, Any]]], name: str) -> float | None:
    """Ratio of the mean recall@5 of the first runs to that of the second ones."""
    ours, theirs = (fmean(pair[i]["recall_of"][name] for pair in pairs) for i in (0, 1))
    return _short(ours / theirs) if theirs else None
