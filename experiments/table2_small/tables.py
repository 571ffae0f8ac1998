"""The tables of docs/results_tables.md, from `table2.json`."""

from collections.abc import Sequence
from typing import Any

from table2_small import page_tables
from table2_small.aggregate import TIMES
from table2_small.questions import ANSWERED
from table2_small.rows import PAPER, ROWS

SETS = {
    "nq_dev": "NQ dev",
    "nq_held_out": "NQ held out",
    "webquestions": "WebQuestions",
    "trec": "CuratedTREC",
    "squad": "SQuAD",
    "all": "these five",
    "nq_dev_said": "NQ dev, named or not",
}
# Table 2 of the paper: exact match and recall@5 on NQ dev, in per cent.
PAPER_VALUES = {
    "realm": (38.2, 38.5),
    "retriever_only": (37.4, 38.5),
    "encoder_only": (35.3, 13.9),
    "ict_only": (31.3, 13.9),
    "random_token": (32.3, 24.2),
    "random_span": (35.3, 26.1),
    "stale_30x": (28.7, 15.1),
}


def tables(made: dict[str, Any]) -> dict[str, str]:
    """Markdown of each table of docs/results_tables.md, by name."""
    return {
        "rows": _rows_table(made),
        "sets": _sets_table(made),
        "differences": _differences_table(made),
        "answers": _answers_table(made),
        "questions": _questions(made),
        "examples": examples_table(made.get("examples")),
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
        exact, recall = PAPER_VALUES.get(name, (None, None))
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
    lines = []
    for name, row in made["rows"].items():
        sets = [_percent(row["recall_of"], one) for one in SETS]
        lines.append((f"`{name}`", *sets, _percent(row, "own_recall_at_5")))
    return _markdown(("row", *SETS.values(), "own article"), lines)


def _differences_table(made: dict[str, Any]) -> str:
    lines = []
    for difference in made["differences"]:
        sets = [_percent(difference["recall_of"], one) for one in SETS]
        lines.append((f"`{difference['row']}` − `{difference['less']}`", *sets))
        lines[-1] += (
            _percent(difference, "own_recall_at_5"),
            _percent(difference, "exact_match_of_all"),
            _nats(difference, "retrieval_utility"),
            *("–" if times is None else f"{times:.2f}" for times in difference["times"].values()),
            str(len(difference["own_recall_at_5"]["seeds"])),
        )
    head = ("rows", *SETS.values(), "own article", "exact match", "retrieval utility")
    head += (*(f"{SETS[name]}, times" for name in TIMES), "seeds")
    return _markdown(head, lines)


def _answers_table(made: dict[str, Any]) -> str:
    names = [SETS[one] for one in ANSWERED]
    lines = []
    for name, row in made["rows"].items():
        sets = [_percent(row["exact_match_of"], one) for one in ANSWERED]
        further = ("exact_match_of_all", "recall_at_5_tuned", "reader_oracle")
        lines.append((f"`{name}`", *sets, *(_percent(row, one) for one in further)))
    return _markdown(("row", *names, "all", "recall@5", "reader could"), lines)


def _questions(made: dict[str, Any]) -> str:
    head = ("questions", "read", "not in NQ dev", "answer in Z", "kept")
    lines = [
        (name, *(f"{counts[part]:,}" for part in ("read", "not_in_dev", "said", "kept")))
        for name, counts in made["questions"].items()
    ]
    return _markdown(head, lines)


def examples_table(made: dict[str, Any] | None) -> str:
    """Sentences as in Table 3 of the paper; `made` is what `examples.examples` returned."""
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
        f"times likelier in {made['much_likelier']:.1%}, and a hundred times less likely in "
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
    return f"{said} ± {scale * (one['high'] - one['mean']):{form}}"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else str(value)


def _markdown(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    rule = tuple("---" for _ in head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def with_tables(page: str, made: dict[str, Any]) -> str:
    """The page with the tables of these results."""
    return page_tables.with_tables(page, tables(made))
