"""The tables of docs/evidence.md and docs/results.md, from `evidence.json`."""

from collections.abc import Sequence
from typing import Any

from table2_small import page_tables

from evidence_runs.aggregate import CHOSEN_ON, PAIRS
from evidence_runs.collections import COLLECTIONS
from evidence_runs.markdown import NOT_RUN, markdown
from evidence_runs.row_tables import row_tables
from evidence_runs.systems import CROSSED, OTHER_FUSION, SYSTEMS

MAIN = [name for name in SYSTEMS if name not in (OTHER_FUSION, *CROSSED)]
FUSED = ["bm25", "start", "start_hybrid", OTHER_FUSION]


def tables(made: dict[str, Any]) -> dict[str, str]:
    """Markdown of each table, by name."""
    return {
        "ndcg": _measure_table(made, "ndcg_at_10", MAIN),
        "recall": _measure_table(made, "recall_at_100", MAIN),
        "fusion": _measure_table(made, "ndcg_at_10", FUSED),
        "differences": _differences_table(made),
        "gain": _gain_table(made),
        "training": _training_table(made),
        "rule": _rule_table(made),
        "recipes": _recipes_table(made),
        "crossed": _crossed_table(made),
        "reference": _reference_table(made),
    } | row_tables(made)


def with_tables(page: str, made: dict[str, Any]) -> str:
    """The page with the tables of these results."""
    return page_tables.with_tables(page, tables(made))


def _measure_table(made: dict[str, Any], measure: str, systems: Sequence[str]) -> str:
    lines = []
    for name, about in COLLECTIONS.items():
        own = made["collections"].get(name, {})
        cells = [_with_interval(own[one][measure]) if one in own else NOT_RUN for one in systems]
        lines.append((f"{name} ({about.queries:,})", *cells))
    return markdown(("collection (queries)", *(f"`{one}`" for one in systems)), lines)


def _differences_table(made: dict[str, Any]) -> str:
    names = [f"{one}_over_{other}" for one, other in PAIRS]
    lines = []
    for name, own in made["differences"].items():
        cells = [_difference(own[one]) if one in own else NOT_RUN for one in names]
        lines.append((name, *cells))
    head = [f"`{name.replace('_over_', '` − `')}`" for name in names]
    return markdown(("collection", *head), lines)


def _gain_table(made: dict[str, Any]) -> str:
    lines = []
    for name, gain in made["gain"].items():
        one, other = name.split("_over_")
        both = [own for own in made["collections"].values() if one in own and other in own]
        elsewhere = made["gain_elsewhere"].get(name)
        others = NOT_RUN if elsewhere is None else _difference(elsewhere)
        lines.append((f"`{one}` − `{other}`", _difference(gain), str(len(both)), others))
    without = f"without {', '.join(CHOSEN_ON[:-1])} and {CHOSEN_ON[-1]}"
    return markdown(("systems", "nDCG@10", "collections", without), lines)


def _training_table(made: dict[str, Any]) -> str:
    lines = []
    for name, runs in made["training"].items():
        gain = made["differences"].get(name, {}).get("realm_over_start")
        seeds = made["collections"][name]["realm"]["ndcg_at_10"]["seeds"]
        start = made["collections"][name].get("start", {}).get("ndcg_at_10", {}).get("mean")
        for run, value in zip(runs, seeds, strict=True):
            own = NOT_RUN if start is None or gain is None else f"{value - start:+.3f}"
            curve = ", ".join(f"{utility:.2f}" for _, utility in run["utility"])
            null = f"{run['p_null'][-1][1]:.3f}" if run["p_null"] else NOT_RUN
            found = run["success_at_5"]
            success = f"{found['start']:.2f} to {found['realm']:.2f}" if found else NOT_RUN
            cells = (curve or NOT_RUN, null, success, own)
            cost = (f"{run['minutes']:.0f}", run["device"])
            lines.append((name, str(run["seed"]), *cells, *cost))
    measured = ("utility at each evaluation", "p(null)", "success@5", "gain", "minutes", "device")
    return markdown(("collection", "seed", *measured), lines)


def _rule_table(made: dict[str, Any]) -> str:
    lines = [
        (
            f"`{one['label'] or 'realm'}`",
            f"{one['threshold']}" if one["threshold"] else "none",
            ", ".join(one["kept"]) or "none",
            _difference(one["gain"]),
        )
        for one in made["rule"]
    ]
    return markdown(("records", "threshold", "training is kept for", "mean gain"), lines)


def _recipes_table(made: dict[str, Any]) -> str:
    lines = []
    for one in made["recipes"]:
        over_base, hybrid = (
            NOT_RUN if one[name] is None else _difference(one[name])
            for name in ("over_base", "hybrid_over_start_hybrid")
        )
        cells = (
            one["change"],
            one["collection"],
            f"{one['ndcg_at_10']:.3f}",
            _difference(one["over_start"]),
            f"`{one['base']}`: {over_base}",
            hybrid,
            ", ".join(f"{utility:.2f}" for utility in one["utility"]) or NOT_RUN,
        )
        lines.append((f"`{one['label']}`" + "*" * one["patch"], *cells))
    figures = ("nDCG@10", "against `start`", "against", "with BM25, against `start_hybrid`")
    head = ("records", "change", "collection", *figures, "utility")
    return markdown(head, lines)


def _crossed_table(made: dict[str, Any]) -> str:
    lines = []
    for one in made["recipes"]:
        if one["crossed"]:
            cells = [_difference(one["crossed"][system]) for system in CROSSED]
            both = _difference(one["over_start"])
            lines.append((f"`{one['label']}`", one["collection"], both, *cells))
    return markdown(
        ("records", "collection", "both", *(SYSTEMS[one].about for one in CROSSED)), lines
    )


def _reference_table(made: dict[str, Any]) -> str:
    lines = []
    for name, known in COLLECTIONS.items():
        own = made["collections"].get(name, {})
        cells = []
        for system, value in (("bm25", known.bm25), ("start", known.minilm)):
            found = own[system]["ndcg_at_10"]["mean"] if system in own else None
            cells += [_number(value), _number(found)]
            cells.append(NOT_RUN if value is None or found is None else f"{found - value:+.3f}")
        lines.append((name, f"{known.documents:,}", known.about, *cells))
    head = ("collection", "documents", "content", "bm25s", "`bm25`", "difference")
    return markdown((*head, "sentence-transformers", "`start`", "difference"), lines)


def _number(value: float | None) -> str:
    return NOT_RUN if value is None else f"{value:.3f}"


def _with_interval(figure: dict[str, Any]) -> str:
    return f"{figure['mean']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"


def _difference(figure: dict[str, Any]) -> str:
    return f"{figure['mean']:+.3f} ({figure['low']:+.3f} to {figure['high']:+.3f})"
