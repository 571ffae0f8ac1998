"""Charts of a run: losses, retrieval metrics, index staleness and speed."""

from realm_jax.report.charts import Line, bar_chart, line_chart
from realm_jax.report.html import Element, element
from realm_jax.report.run_data import RunData

STAGE_TITLES = {
    "reader": "Reader warm-up",
    "ict": "Inverse cloze task (ICT)",
    "realm": "REALM",
    "qa": "Fine-tuning on questions",
    "tagger": "Tagger",
}


def charts_section(run: RunData) -> Element:
    """All charts over training steps."""
    found = [*_realm_charts(run), *_loss_charts(run), _speed_chart(run)]
    return element("div", found, class_="charts")


def _realm_charts(run: RunData) -> list[Element | None]:
    """Curves of the REALM stage; each chart marks the steps of index swaps."""
    steps = float(run.config.stages.realm.steps)
    k = run.config.evaluation.recall_k
    swaps = [float(first) for first, _ in run.swaps if first > 0]

    def chart(title: str, unit: str, lines: list[Line], note: str = "") -> Element | None:
        return line_chart(title, unit, lines, note=note, marks=swaps, last=steps, zero=True)

    def held_out(name: str, label: str = "held out") -> Line:
        return Line(label, run.values("realm", f"held_out_{name}"), dots=True)

    def both(name: str) -> list[Line]:
        return [held_out(name), Line("training", run.values("realm", name))]

    return [
        chart(
            "Retrieval utility",
            "nats per masked word piece",
            both("retrieval_utility"),
            "log p(y|x) − log p(y|null, x). Above 0, passages help; it should rise.",
        ),
        chart(
            f"Recall@{k} of held-out sentences",
            "share",
            [held_out(f"recall_at_{k}", "with the index in use")],
            f"Share of sentences whose answer passage is among the first {k}. A swap changes it.",
        ),
        chart("REALM loss", "nats per masked word piece", both("loss")),
        chart(
            "p(null)",
            "mean probability",
            both("p_null"),
            "p(z|x) of the null passage. Near 1, retrieval has collapsed.",
        ),
        chart(
            "Staleness of the index in use",
            "steps",
            [Line("training step − step of the index", _staleness(run))],
            "Rises by one each step and falls when a new index is swapped in.",
        ),
    ]


def _staleness(run: RunData) -> list[tuple[float, float]]:
    """(step, staleness) where the curve of staleness turns."""
    corners: list[tuple[float, float]] = []
    swaps = [swap for swap in run.swaps if swap[0] < run.trained_steps("realm")]
    starts = [first for first, _ in swaps]
    steps = [record["step"] for record in run.records.get("realm", [])]
    ends = [*starts[1:], max([*steps, *starts[-1:]], default=0)]
    for (first, index), end in zip(swaps, ends, strict=False):
        corners += [(float(first), float(first - index)), (float(end), float(end - index))]
    return corners


def _loss_charts(run: RunData) -> list[Element | None]:
    return [
        line_chart(
            f"{STAGE_TITLES[stage]} loss",
            "nats",
            [Line("training", run.values(stage, "loss"))],
            zero=True,
        )
        for stage in ("reader", "ict", "qa", "tagger")
        if stage in run.records
    ]


def _speed_chart(run: RunData) -> Element | None:
    speed = run.values("realm", "pieces_per_second")
    line = Line("word pieces, padding excluded", speed)
    return line_chart("Training speed of stage REALM", "word pieces per second", [line], zero=True)


def recall_chart(run: RunData) -> Element | None:
    """Recall before training, after ICT and after REALM."""
    k = run.config.evaluation.recall_k
    names = {"untrained": "before training", "ict": "after ICT", "realm": "after REALM"}
    recalls = run.measured.get(f"recall_at_{k}", {})
    bars = [(names.get(name, name), value, f"{value:.1%}") for name, value in recalls.items()]
    note = "Exact search over the whole knowledge corpus; queries are held-out masked sentences."
    return bar_chart(f"Recall@{k} before and after training", "share", bars, note=note, most=1.0)


def rank_chart(by_rank: list[tuple[float, float]]) -> Element | None:
    """Retrieval utility of the passage at each rank (REALM, appendix D)."""
    bars = [
        (f"passage {rank}   p(z|x) {share:.2f}", utility, f"{utility:+.2f}")
        for rank, (utility, share) in enumerate(by_rank, 1)
    ]
    note = (
        "log p(y|z, x) − log p(y|null, x), where z is the passage at this rank. A trained "
        "retriever ranks the most useful passage first."
    )
    return bar_chart("Retrieval utility by rank", "nats per masked word piece", bars, note=note)
