"""The parts of the page that need the run's own records alone."""

import json
from importlib import metadata
from typing import Any

from realm_jax import __version__
from realm_jax import config as config_lib
from realm_jax.defaults import default
from realm_jax.report.charts import Line, bar_chart, line_chart
from realm_jax.report.finished import FinishedRun
from realm_jax.report.html import Element, element
from realm_jax.watch.words import count, span

_STAGES = {
    "ict": "Inverse cloze",
    "reader": "Reader warm start",
    "realm": "REALM",
    "qa": "Open QA",
    "tagger": "Tagger",
}
_VERSIONED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "scann", "numpy", "tokenizers")
_PARTS = ("embed", "build", "check", "publish")


def charts_section(finished: FinishedRun) -> Element:
    """All curves over steps."""
    found = [*_realm_charts(finished), *_loss_charts(finished), _speed_chart(finished)]
    return element("div", found, class_="charts")


def _realm_charts(finished: FinishedRun) -> list[Element | None]:
    steps = float(finished.config.stages.realm.steps)
    k = finished.config.evaluation.neighbours
    swaps = [float(first) for first, _ in finished.swaps if first > 0]

    def course(label: str, figure: str, *, held_out: bool = False) -> Line:
        return Line(label, finished.course("realm", figure), dots=held_out)

    return [
        line_chart(
            "Retrieval utility",
            "nats per masked piece",
            [
                course("held out", "held_out_retrieval_utility", held_out=True),
                course("training", "retrieval_utility"),
            ],
            note="log p(y|x) − log p(y|null, x). Above 0, passages help; it should rise.",
            marks=swaps,
            last=steps,
            zero=True,
        ),
        line_chart(
            f"Recall@{k} of held-out sentences",
            "share",
            [course("with the index in use", f"held_out_recall_at_{k}", held_out=True)],
            note="How often a passage that states the hidden fact is among the first "
            f"{k}. It moves when a fresh index is swapped in.",
            marks=swaps,
            last=steps,
            zero=True,
        ),
        line_chart(
            "REALM loss",
            "nats per masked piece",
            [
                course("held out", "held_out_loss", held_out=True),
                course("training", "loss"),
            ],
            marks=swaps,
            last=steps,
            zero=True,
        ),
        line_chart(
            "p(null)",
            "mean probability",
            [
                course("held out", "held_out_p_null", held_out=True),
                course("training", "p_null"),
            ],
            note="How much the retriever prefers no passage. Near 1, retrieval has been given up.",
            marks=swaps,
            last=steps,
            zero=True,
        ),
        line_chart(
            "Staleness of the index in use",
            "steps",
            [Line("training step − step of the index", _ages(finished), stairs=False)],
            note="Rises by one each step, falls when a fresh index is swapped in.",
            marks=swaps,
            last=steps,
            zero=True,
        ),
    ]


def _ages(finished: FinishedRun) -> list[tuple[float, float]]:
    """The corners of staleness over steps."""
    corners: list[tuple[float, float]] = []
    ends = [first for first, _ in finished.swaps[1:]] + [finished.config.stages.realm.steps]
    for (first, index), end in zip(finished.swaps, ends, strict=True):
        corners += [(float(first), float(first - index)), (float(end), float(end - index))]
    return corners


def _loss_charts(finished: FinishedRun) -> list[Element | None]:
    return [
        line_chart(
            f"{_STAGES[stage]} loss",
            "nats",
            [Line("training", finished.course(stage, "loss"))],
            zero=True,
        )
        for stage in ("ict", "reader", "qa", "tagger")
        if stage in finished.records
    ]


def _speed_chart(finished: FinishedRun) -> Element | None:
    speed = finished.course("realm", "pieces_per_second")
    line = Line("word pieces that are not padding", speed)
    return line_chart("Speed of REALM", "real pieces per second", [line], zero=True)


def recall_chart(finished: FinishedRun) -> Element | None:
    """Recall before any training, after the warm start, after REALM."""
    k = finished.config.evaluation.neighbours
    names = {"untrained": "before training", "ict": "after inverse cloze", "realm": "after REALM"}
    recalls = finished.measured.get(f"recall_at_{k}", {})
    bars = [(names.get(name, name), value, f"{value:.1%}") for name, value in recalls.items()]
    note = "Exact search over the whole knowledge corpus, on sentences that were never trained on."
    return bar_chart(f"Recall@{k}, before and after", "share", bars, note=note, most=1.0)


def rank_chart(by_rank: list[tuple[float, float]]) -> Element | None:
    """Retrieval utility of the passage at each rank."""
    bars = [
        (f"passage {rank}   p(z|x) {share:.2f}", utility, f"{utility:+.2f}")
        for rank, (utility, share) in enumerate(by_rank, 1)
    ]
    note = (
        "log p(y|z, x) − log p(y|null, x) of the passage at that rank alone. A retriever that has "
        "learnt puts the most useful first."
    )
    return bar_chart("Retrieval utility by rank", "nats per masked piece", bars, note=note)


def tiles(finished: FinishedRun) -> Element:
    """What one looks at first; what was not measured is not there."""
    m, k = finished.measured, finished.config.evaluation.neighbours
    found: list[tuple[str, str]] = []
    recalls = list(m.get(f"recall_at_{k}", {}).values())
    if len(recalls) > 1:
        found += [(f"{recalls[0]:.0%} → {recalls[-1]:.0%}", f"recall@{k}, before → after")]
    utility = finished.last("realm", "held_out_retrieval_utility")
    if utility is not None:
        found += [(f"{utility:+.2f}", "retrieval utility, held out, nats per piece")]
    if "exact_match" in m:
        by_heart = m.get("exact_match_closed_book")
        beside = "" if by_heart is None else f" (closed book {by_heart:.0%})"
        found += [(f"{m['exact_match']:.0%}", f"questions answered exactly{beside}")]
    if "staleness_steps" in m:
        ages = m["staleness_steps"]
        found += [(str(m["index_swaps"]), "fresh indexes swapped in")]
        found += [(f"{ages['mean']:.0f}, {ages['max']:.0f}", "staleness in steps, mean and most")]
    total = sum(finished.stage_seconds.values())
    if total:
        found += [(span(total), "training in all")]
    made = [
        element("div", element("b", a), element("span", b, class_="quiet"), class_="tile")
        for a, b in found
    ]
    return element("div", made, class_="tiles")


def seconds_section(finished: FinishedRun) -> list[Element]:
    """Where the time went, in both jobs."""
    stages = [
        (_STAGES[stage], span(seconds), _speed(finished, stage))
        for stage, seconds in finished.stage_seconds.items()
    ]
    found = [_table(("stage", "time", "real pieces per second, last"), stages)] if stages else []
    if finished.refreshes:
        rows = [
            (
                count(record["step"]),
                span(record["seconds"]),
                *(f"{record.get(f'seconds_{part}', 0.0):.1f} s" for part in _PARTS),
                f"{record['recall']:.3f}",
                count(record["passages"]),
            )
            for record in finished.refreshes
        ]
        head = ("index of step", "time", *_PARTS, "recall@10", "passages")
        found += [element("h3", "Refreshes of the index builder"), _table(head, rows)]
    return found


def _speed(finished: FinishedRun, stage: str) -> str:
    pieces = finished.last(stage, "pieces_per_second")
    return "" if pieces is None else count(pieces)


def config_section(finished: FinishedRun) -> list[Element]:
    """What differs from the defaults, then everything."""
    flat, usual = _flat(finished.config), _flat(default())
    changed = [
        (key, str(value), str(usual[key])) for key, value in flat.items() if value != usual[key]
    ]
    text = config_lib.to_json(finished.config)
    return [
        _table(("key", "this run", "default"), changed),
        element("details", element("summary", "the whole config"), element("pre", text)),
    ]


def versions_section() -> Element:
    """Of the packages that wrote this page, which are those of the run when it has just ended."""
    rows = [("realm-jax", __version__)]
    for name in _VERSIONED:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return _table(("package", "version"), rows)


def _flat(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in config_lib.keys(config):
        value = json.loads(config_lib.to_json(config))
        for name in key.split("."):
            value = value[name]
        found[key] = value
    return found


def _table(head: tuple[str, ...], rows: list[Any]) -> Element:
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", [element("th", cell) for cell in head])),
            element(
                "tbody",
                [element("tr", [element("td", cell) for cell in row]) for row in rows],
            ),
        ),
        class_="scroll",
    )
