"""The rows of Table 2 in evidence.json: every question of four sets, from an encoder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from table2_small.aggregate import interval as interval_over_seeds
from table2_small.all_questions import JUDGED
from table2_small.bits import from_bits
from table2_small.rows import ROWS_FROM_START

from evidence_runs.aggregate import CONFIDENCE, RESAMPLES
from evidence_runs.start import read_of_one_start

MEASURES = ("recall_at_5", "exact_match")
# Paired differences for the claims of the paper and those of the rows that it does not have.
PAIRS = (
    ("realm", "ict_only"),
    ("retriever_only", "ict_only"),
    ("encoder_only", "ict_only"),
    ("realm", "start"),
    ("realm", "bm25"),
    ("realm", "stale_30x"),
    ("realm", "random_span"),
    ("random_span", "random_token"),
    ("random_span", "start"),
    ("realm", "all_names"),
    ("all_names", "start"),
    ("stated_names", "start"),
    ("stated_names", "stated_names_stale"),
    ("stated_random_span", "start"),
)
UNTRAINED = "untrained.json"  # the record of `table2.py --untrained`
UNTRAINED_SYSTEMS = ("start", "bm25", "start_hybrid", "start_reciprocal_ranks")
UNTRAINED_PAIRS = (("start_hybrid", "start"), ("start_hybrid", "start_reciprocal_ranks"))

Values = Float64[np.ndarray, "questions"]


def aggregate_rows(folder: Path) -> dict[str, Any]:
    """The parts of `evidence.json` that come from the records `ROW_SEED.json` in `folder`.

    Values of questions are means over seeds. An interval is a bootstrap over questions; that of the
    retrieval utility is Student's t over seeds, and missing for one seed.

    Returns:
      `rows`: by row and measure; `row_differences`: paired by question; `row_training`: minutes,
      and the retrieval utility of each evaluation, means over seeds; `row_examples`: masked
      sentences of the first run of `realm`; `untrained` and `untrained_differences`: recall@5 of
      retrievers without training.

    Raises:
      MismatchError: the records start from two encoders; see `read_of_one_start`.
    """
    records: dict[str, list[dict[str, Any]]] = {}
    paths = [*folder.glob(UNTRAINED), *sorted(folder.glob("*_*.json"))]
    for path, record in zip(paths, read_of_one_start(paths), strict=True):
        if path.name != UNTRAINED:
            records.setdefault(record["row"], []).append(record)
    rows = {name: records[name] for name in ROWS_FROM_START if name in records}
    shown = [record["examples"] for record in rows.get("realm", []) if "examples" in record]
    examples = {"row_examples": shown[0]} if shown else {}
    return (
        examples
        | _untrained(folder / UNTRAINED)
        | {
            "rows": {name: _row(own) for name, own in rows.items()},
            "row_differences": _differences(rows),
            "row_training": {name: _training(own) for name, own in rows.items()},
        }
    )


def _untrained(path: Path) -> dict[str, Any]:
    """The figures of the record of `table2.py --untrained`; {} if there is none."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text())["by_question"]
    values = {
        kind: {name: from_bits(own) for name, own in sets.items()} for kind, sets in found.items()
    }
    return {
        "untrained": {
            kind: {name: _interval(own) for name, own in sets.items()}
            for kind, sets in values.items()
        },
        "untrained_differences": {
            f"{one}_over_{other}": {
                name: _interval(values[one][name] - values[other][name]) for name in JUDGED
            }
            for one, other in UNTRAINED_PAIRS
        },
    }


def _row(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        measure: {name: _figure(records, measure, name) for name in JUDGED} for measure in MEASURES
    }
    utility = interval_over_seeds([record["retrieval_utility"] for record in records])
    seeds = [round(value, 4) for value in utility.pop("seeds")]
    return found | {"retrieval_utility": {**utility, "seeds": seeds}}


def _figure(records: Sequence[dict[str, Any]], measure: str, name: str) -> dict[str, Any]:
    seeds = [values.mean() for values in _by_question(records, measure, name)]
    figure = _interval(np.mean(_by_question(records, measure, name), axis=0))
    return {**figure, "seeds": [round(float(value), 4) for value in seeds]}


def _by_question(records: Sequence[dict[str, Any]], measure: str, name: str) -> list[Values]:
    return [from_bits(record["by_question"][measure][name]) for record in records]


def _interval(values: Values) -> dict[str, float]:
    """Mean and bootstrap interval of values that have few levels.

    Drawing n questions with replacement draws the number of each level from a multinomial. Those
    of `RandomState` are the same in all versions of NumPy; those of `default_rng` are not.
    """
    levels, counts = np.unique(values, return_counts=True)
    random = np.random.RandomState(0)
    drawn = random.multinomial(len(values), counts / len(values), size=RESAMPLES)
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn @ levels / len(values), [edge, 1 - edge])
    figures = {"mean": values.mean(), "low": low, "high": high}
    return {name: round(float(value), 4) for name, value in figures.items()}


def _differences(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Differences of two rows by question, over the seeds that both have."""
    found: dict[str, Any] = {}
    for one, other in PAIRS:
        seeds = {r["seed"] for r in rows.get(one, [])} & {r["seed"] for r in rows.get(other, [])}
        pair = [[r for r in rows.get(name, []) if r["seed"] in seeds] for name in (one, other)]
        if seeds:
            found[f"{one}_over_{other}"] = {
                measure: {name: _interval(_difference(pair, measure, name)) for name in JUDGED}
                for measure in MEASURES
            }
    return found


def _difference(pair: Sequence[Sequence[dict[str, Any]]], measure: str, name: str) -> Values:
    ours, theirs = (np.mean(_by_question(own, measure, name), axis=0) for own in pair)
    return np.asarray(np.round(ours - theirs, 6))  # equal levels are equal numbers


def _training(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    minutes = [record["command_seconds"] / 60 for record in records]
    curves = [dict(record["curve"]) for record in records]
    steps = sorted(set.intersection(*map(set, curves)))
    return {
        "minutes": [round(value, 1) for value in minutes],
        "device": ", ".join(sorted({record["device"] for record in records})),
        "utility": [
            [int(step), round(float(np.mean([curve[step] for curve in curves])), 4)]
            for step in steps
        ],
    }
