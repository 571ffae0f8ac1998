"""The model card of an export, in Hugging Face's format; of what was measured alone."""

from html import escape
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from realm_jax import __version__
from realm_jax.monitoring.format import count, span
from realm_jax.report.run_data import FinishedRun

CARD = "README.md"


def model_card(finished: FinishedRun) -> str:
    """The card of a run's newest export: YAML head, then text."""
    tuned = "span_head" in finished.export["networks"]
    data = ModelCardData(
        library_name="realm-jax",
        pipeline_tag="question-answering" if tuned else "fill-mask",
        tags=["realm", "retrieval", "jax"],
        model_name=finished.name,
        eval_results=_results(finished),
    )
    parts = [
        f"# {escape(finished.name)}",
        _what(finished, tuned=tuned),
        _sizes(finished),
        _figures(finished),
        _use(finished, tuned=tuned),
    ]
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _what(finished: FinishedRun, *, tuned: bool) -> str:
    corpus = finished.config.corpus
    learnt = "a question answerer: " if tuned else "a filler of blanks: "
    lines = [
        f"REALM ([Guu et al., 2020](https://arxiv.org/abs/2002.08909)), {learnt}a retriever and a "
        f"reader trained together by realm-jax {__version__}. It answers from a passage index and "
        "cannot be used without it.",
        "",
        f"- knowledge corpus: {_quoted(corpus.knowledge)}"
        + (f", {finished.index['passages']:,} passages" if "passages" in finished.index else ""),
        f"- masked text: {_quoted(corpus.pretraining or corpus.knowledge)}",
    ]
    if tuned and corpus.questions:
        lines.append(f"- questions: {_quoted(corpus.questions)}")
    lines.append(
        f"- export of step {finished.export['step']}, index of step {finished.export['index_step']}"
    )
    return "\n".join(lines)


def _quoted(path: str) -> str:
    """The last parts of a path, as code that cannot end early."""
    return f"`{'/'.join(Path(path).parts[-2:]).replace('`', '')}`"


def _sizes(finished: FinishedRun) -> str:
    model, lengths = finished.config.model, finished.config.lengths
    rows = [
        ("layers", model.layers),
        ("hidden", model.hidden),
        ("attention heads", model.heads),
        ("query and passage vectors", model.embedding),
        ("query length, pieces", lengths.query),
        ("passage length, pieces", lengths.passage),
    ]
    for stage, seconds in finished.stage_seconds.items():
        steps = finished.config.stages[stage].steps
        rows.append((f"stage {stage}", f"{count(steps)} steps in {span(seconds)}"))
    return _table("Sizes and training", rows)


def _figures(finished: FinishedRun) -> str:
    rows = [
        (result.metric_name, _written(result.metric_value)) for result in _results(finished) or []
    ]
    return _table("Measured on held-out text", rows) if rows else ""


def _results(finished: FinishedRun) -> list[EvalResult] | None:
    """What was measured; None if nothing was."""
    m, k = finished.measured, finished.config.evaluation.neighbours
    found: list[tuple[str, str, str, Any]] = []
    recalls = m.get(f"recall_at_{k}", {})
    if "realm" in recalls:
        found.append(("fill-mask", "recall", f"recall@{k} of masked sentences", recalls["realm"]))
    if "retrieval_utility" in m:
        name = "retrieval utility (nats per masked piece)"
        found.append(("fill-mask", "retrieval_utility", name, m["retrieval_utility"]))
    if "exact_match" in m:
        found.append(("question-answering", "exact_match", "exact match", m["exact_match"]))
    if "exact_match_closed_book" in m:
        name = "exact match without retrieval"
        value = m["exact_match_closed_book"]
        found.append(("fill-mask", "exact_match", name, value))
    corpus = finished.config.corpus
    held_out = corpus.held_out or corpus.pretraining or corpus.knowledge
    name = "/".join(Path(held_out).parts[-2:])
    return [
        EvalResult(
            task_type=task,
            dataset_type="custom",
            dataset_name=f"{name} (held out)",
            metric_type=kind,
            metric_name=metric,
            metric_value=round(value, 4),
        )
        for task, kind, metric, value in found
    ] or None


def _use(finished: FinishedRun, *, tuned: bool) -> str:
    workdir = finished.name
    asked = '"a question?"' if tuned else '"a sentence with one [MASK]."'
    return (
        "## Use\n\n```\n"
        f"realm ask --workdir={workdir} {asked}\n```\n\n"
        "What it says is read from its passages: it is as right, as complete and as biased as they "
        "are. The probabilities are the model's own, not measured frequencies."
    )


def _table(title: str, rows: list[Any]) -> str:
    body = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"## {title}\n\n| | |\n|---|---|\n{body}"


def _written(value: float) -> str:
    return f"{value:.4g}"
