"""Tables of the rows of Table 2 from an encoder, and the summary of docs/results.md."""

from typing import Any

import numpy as np
from table2_small.rows import ROWS_FROM_START
from table2_small.tables import examples_table

from evidence_runs.markdown import NOT_RUN, markdown
from evidence_runs.rows import MEASURES, PAIRS, UNTRAINED_SYSTEMS

SETS = {
    "nq_dev": "NQ dev",
    "triviaqa_dev": "TriviaQA dev",
    "webquestions": "WebQuestions",
    "trec": "CuratedTREC",
}
# Line of the summary -> the system of the collections, and the row of Table 2.
SUMMARY = {
    "the encoder as it comes": ("start", "start"),
    "BM25": ("bm25", "bm25"),
    "ICT": ("ict", "ict_only"),
    "REALM": ("realm", "realm"),
    "REALM, random spans hidden": ("", "random_span"),
    "REALM, one draw, as in the paper": ("", "all_names"),
    "REALM, stated names hidden": ("", "stated_names"),
    "the encoder and BM25": ("start_hybrid", ""),
    "REALM and BM25": ("realm_hybrid", ""),
}
# Claims of the paper, and some that it does not make: the rows that are compared.
CLAIMS = {
    "REALM's retriever and reader beat ICT's": ("realm", "ict_only"),
    "REALM's retriever beats ICT's, with the reader of ICT": ("retriever_only", "ict_only"),
    "REALM's reader beats ICT's, with the retriever of ICT": ("encoder_only", "ict_only"),
    "A fresh index beats one that is 30 times staler": ("realm", "stale_30x"),
    "Salient spans beat random spans": ("realm", "random_span"),
    "Random spans beat random tokens": ("random_span", "random_token"),
    "REALM beats the encoder it starts from": ("realm", "start"),
    "REALM beats BM25": ("realm", "bm25"),
    "Eight draws beat one": ("realm", "all_names"),
    "One draw: REALM beats the encoder": ("all_names", "start"),
    "Random spans: REALM beats the encoder": ("random_span", "start"),
    "Stated names: REALM beats the encoder": ("stated_names", "start"),
    "Stated names: a fresh index beats a stale one": ("stated_names", "stated_names_stale"),
    "Random spans in passages with stated names: REALM beats the encoder": (
        "stated_random_span",
        "start",
    ),
}


def row_tables(made: dict[str, Any]) -> dict[str, str]:
    """Markdown of each table, by name."""
    return {
        "rows_recall": _rows_table(made, "recall_at_5"),
        "rows_exact": _rows_table(made, "exact_match"),
        "rows_utility": _utility_table(made),
        "rows_differences": _differences_table(made),
        "untrained": _untrained_table(made),
        "verdicts": _verdicts_table(made),
        "summary": _summary_table(made),
        "rows_examples": examples_table(made.get("row_examples")),
    }


def _rows_table(made: dict[str, Any], measure: str) -> str:
    lines = []
    for name in ROWS_FROM_START:
        own = made["rows"].get(name)
        cells = [_percent(own[measure][one]) if own else NOT_RUN for one in SETS]
        seeds = str(len(own[measure]["nq_dev"]["seeds"])) if own else NOT_RUN
        lines.append((f"`{name}`", *cells, seeds))
    return markdown(("row", *SETS.values(), "seeds"), lines)


def _untrained_table(made: dict[str, Any]) -> str:
    recalls, differences = made.get("untrained", {}), made.get("untrained_differences", {})
    lines = [
        (f"`{name}`", *(_percent(recalls[name][one]) if recalls else NOT_RUN for one in SETS))
        for name in UNTRAINED_SYSTEMS
    ]
    for name, own in differences.items():
        pair = name.replace("_over_", "` − `")
        lines.append((f"`{pair}`", *(_points(own[one]) for one in SETS)))
    return markdown(("retriever", *SETS.values()), lines)


def _utility_table(made: dict[str, Any]) -> str:
    lines = []
    for name in ROWS_FROM_START:
        training = made["row_training"].get(name)
        if training is None:
            lines.append((f"`{name}`", *[NOT_RUN] * 4))
            continue
        figure = made["rows"][name]["retrieval_utility"]
        text = f"{figure['mean']:.3f}"
        if figure["low"] is not None:
            text += f" ({figure['low']:.3f} to {figure['high']:.3f})"
        curve = ", ".join(f"{step}: {value:.2f}" for step, value in training["utility"])
        minutes = ", ".join(f"{value:.0f}" for value in training["minutes"])
        lines.append((f"`{name}`", text, curve or NOT_RUN, minutes, training["device"]))
    return markdown(
        ("row", "retrieval utility", "at steps", "minutes of each seed", "device"), lines
    )


def _differences_table(made: dict[str, Any]) -> str:
    lines = []
    for one, other in PAIRS:
        own = made["row_differences"].get(f"{one}_over_{other}")
        for measure, title in (("recall_at_5", "recall@5"), ("exact_match", "exact match")):
            cells = [_points(own[measure][name]) if own else NOT_RUN for name in SETS]
            lines.append((f"`{one}` − `{other}`", title, *cells))
    return markdown(("rows", "measure", *SETS.values()), lines)


def _verdicts_table(made: dict[str, Any]) -> str:
    lines = []
    for claim, (one, other) in CLAIMS.items():
        own = made["row_differences"].get(f"{one}_over_{other}")
        cells = [_verdict(own[measure]) if own else NOT_RUN for measure in MEASURES]
        lines.append((claim, *cells))
    training = made["row_training"].get("realm")
    curve = [value for _, value in training["utility"]] if training else []
    rises = f"from {curve[0]:.2f} to {curve[-1]:.2f} nats" if curve else NOT_RUN
    lines.append(("Retrieval utility rises in pre-training", rises, ""))
    return markdown(("claim", "recall@5", "exact match"), lines)


def _verdict(figures: dict[str, dict[str, float]]) -> str:
    """On how many sets the interval of the difference is above or below zero; two sets decide."""
    better = sum(figure["low"] > 0 for figure in figures.values())
    worse = sum(figure["high"] < 0 for figure in figures.values())
    decided = {better > 1 and not worse: "Yes", worse > 1 and not better: "No"}
    word = decided.get(True, "Not shown")
    return f"**{word}**: better on {better}, worse on {worse} of {len(figures)} sets"


def _summary_table(made: dict[str, Any]) -> str:
    """Means over collections; a system that lacks some of them has none."""
    collections = made["collections"].values()
    counts = {name: sum(name in own for own in collections) for name, _ in SUMMARY.values()}
    measured = [name for name, count in counts.items() if 0 < count == max(counts.values())]
    common = [own for own in collections if all(one in own for one in measured)]
    lines = []
    for title, (system, row) in SUMMARY.items():
        ndcg = [own[system]["ndcg_at_10"]["mean"] for own in common if system in measured]
        recall = made.get("untrained", {}).get(system)
        rows = made["rows"].get(row, {"recall_at_5": recall} if recall else {})
        cells = [f"{np.mean(ndcg):.3f}" if ndcg else NOT_RUN]
        for measure in ("recall_at_5", "exact_match"):
            for name in ("nq_dev", "triviaqa_dev"):
                known = measure in rows
                cells.append(f"{100 * rows[measure][name]['mean']:.1f}" if known else NOT_RUN)
        lines.append((title, *cells))
    measures = [
        f"{measure}, {SETS[name]}, %"
        for measure in ("recall@5", "exact match")
        for name in ("nq_dev", "triviaqa_dev")
    ]
    ndcg_head = f"nDCG@10, mean of {len(common)} collections"
    return markdown(("system", ndcg_head, *measures), lines)


def _percent(figure: dict[str, Any]) -> str:
    mean, low, high = (100 * figure[name] for name in ("mean", "low", "high"))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})"


def _points(figure: dict[str, Any]) -> str:
    mean, low, high = (100 * figure[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
