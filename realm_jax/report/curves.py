"""The run's charts: what was learnt, how fast, and how old the index was."""

from realm_jax.report.charts import Line, bar_chart, line_chart
from realm_jax.report.html import Element, element
from realm_jax.report.run_data import FinishedRun

STAGE_TITLES = {
    "reader": "Reader warm start",
    "ict": "Inverse cloze",
    "realm": "REALM",
    "qa": "Open QA",
    "tagger": "Tagger",
}


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
            [Line("training step − step of the index", _ages(finished))],
            note="Rises by one each step, falls when a fresh index is swapped in.",
            marks=swaps,
            last=steps,
            zero=True,
        ),
    ]


def _ages(finished: FinishedRun) -> list[tuple[float, float]]:
    """The corners of staleness over steps."""
    corners: list[tuple[float, float]] = []
    starts = [first for first, _ in finished.swaps]
    steps = [record["step"] for record in finished.records.get("realm", [])]
    ends = [*starts[1:], max([*steps, *starts[-1:]], default=0)]
    for (first, index), end in zip(finished.swaps, ends, strict=False):
        corners += [(float(first), float(first - index)), (float(end), float(end - index))]
    return corners


def _loss_charts(finished: FinishedRun) -> list[Element | None]:
    return [
        line_chart(
            f"{STAGE_TITLES[stage]} loss",
            "nats",
            [Line("training", finished.course(stage, "loss"))],
            zero=True,
        )
        for stage in ("reader", "ict", "qa", "tagger")
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
