"""The model card of an export, in Hugging Face's format; it lists measured values only."""

import shlex
from html import escape
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from realm_jax import __version__
from realm_jax.monitoring.format import count, span
from realm_jax.report.baselines import baselines_table
from realm_jax.report.run_data import RunData

CARD = "README.md"


def model_card(run: RunData) -> str:
    """Makes the card of a run's newest export: a YAML header, then Markdown."""
    tuned = "span_head" in run.export["networks"]
    data = ModelCardData(
        library_name="realm-jax",
        pipeline_tag="question-answering" if tuned else "fill-mask",
        tags=["realm", "retrieval", "jax"],
        model_name=run.name,
        eval_results=_results(run),
    )
    parts = [
        f"# {escape(run.name)}",
        _introduction(run, tuned=tuned),
        _sizes(run),
        _evaluation(run),
        _comparison(run),
        _use(run, tuned=tuned),
    ]
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _introduction(run: RunData, *, tuned: bool) -> str:
    corpus = run.config.corpus
    task = "question answering" if tuned else "filling in masked words"
    lines = [
        f"A REALM model ([Guu et al., 2020](https://arxiv.org/abs/2002.08909)) for {task}: a "
        f"retriever and a reader, trained jointly with realm-jax {__version__}. The model needs "
        "its passage index to answer.",
        "",
        f"- knowledge corpus: {_quoted(corpus.knowledge)}"
        + (f", {run.index['passages']:,} passages" if "passages" in run.index else ""),
        f"- pre-training text: {_quoted(corpus.pretraining or corpus.knowledge)}",
    ]
    if tuned and corpus.questions:
        lines.append(f"- questions: {_quoted(corpus.questions)}")
    lines.append(f"- export of step {run.export['step']}, index of step {run.export['index_step']}")
    return "\n".join(lines)


def _quoted(path: str) -> str:
    """The last two parts of a path as inline code, without backticks."""
    return f"`{'/'.join(Path(path).parts[-2:]).replace('`', '')}`"


def _sizes(run: RunData) -> str:
    model, lengths = run.config.model, run.config.lengths
    rows = [
        ("layers", model.layers),
        ("hidden size", model.hidden),
        ("attention heads", model.heads),
        ("embedding size", model.embedding),
        ("query length in word pieces", lengths.query),
        ("passage length in word pieces", lengths.passage),
    ]
    for stage, seconds in run.stage_seconds.items():
        steps = run.trained_steps(stage)
        rows.append((f"stage {stage}", f"{count(steps)} steps in {span(seconds)}"))
    return _table("Model and training", rows)


def _evaluation(run: RunData) -> str:
    rows = [(result.metric_name, _format(result.metric_value)) for result in _results(run) or []]
    return _table("Evaluation on held-out text", rows) if rows else ""


def _comparison(run: RunData) -> str:
    """The table of free baselines; empty if not measured."""
    head, *rows = baselines_table(run) or [[]]
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    measure = f"Right passage among the first {run.measured['baselines']['k']}:"
    return f"## Comparison with BM25 and with the start\n\n{measure}\n\n{body}"


def _results(run: RunData) -> list[EvalResult] | None:
    """The measured values in Hugging Face's format; None without any."""
    m, k = run.measured, run.config.evaluation.recall_k
    found: list[tuple[str, str, str, Any]] = []
    recalls = m.get(f"recall_at_{k}", {})
    if "realm" in recalls:
        found.append(("fill-mask", "recall", f"recall@{k} of masked sentences", recalls["realm"]))
    if "retrieval_utility" in m:
        name = "retrieval utility (nats per masked word piece)"
        found.append(("fill-mask", "retrieval_utility", name, m["retrieval_utility"]))
    if "exact_match" in m:
        found.append(("question-answering", "exact_match", "exact match", m["exact_match"]))
    if "exact_match_closed_book" in m:
        name = "exact match without retrieval"
        value = m["exact_match_closed_book"]
        found.append(("fill-mask", "exact_match", name, value))
    corpus = run.config.corpus
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


def _use(run: RunData, *, tuned: bool) -> str:
    workdir = run.name
    query = '"a question?"' if tuned else '"a sentence with one [MASK]."'
    return (
        "## Use\n\n```\n"
        f"realm ask --workdir={shlex.quote(workdir)} {query}\n```\n\n"
        "Answers depend on the retrieved passages, so they inherit errors, gaps and bias of the "
        "corpus. The probabilities are not calibrated."
    )


def _table(title: str, rows: list[Any]) -> str:
    body = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"## {title}\n\n| | |\n|---|---|\n{body}"


def _format(value: float) -> str:
    return f"{value:.4g}"
