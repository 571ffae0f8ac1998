"""The free baselines: is the trained retriever better than BM25, and than what it started from?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int64
from ml_collections import ConfigDict

from realm_jax.data.answers import accepted, contains_answer
from realm_jax.data.open_qa import question_rows
from realm_jax.data.question_files import Question
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Parameters
from realm_jax.report.html import Element, element, table
from realm_jax.report.run_data import RunData
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.retrieval.fusion import DEPTH, NO_PASSAGE, Fusion
from realm_jax.trainer.inputs import Inputs
from realm_jax.trainer.recall import EmbeddedCorpus

LABELS = {
    "bm25": "BM25, no training",
    "start": "encoder before training",
    "realm": "encoder after training",
    "hybrid": "BM25 and encoder after training",
}
SETS = {
    "held_out": "held-out sentences",
    "questions": "questions",
}
Hits = Int64[np.ndarray, "B K"]


@dataclass(frozen=True)
class _Queries:
    """Queries and how their hits are judged.

    Attributes:
      texts: for BM25, without masks.
      rows: for the encoders.
      source: passage that is left out of the hits of each query; -1: none.
      right: whether one of some passages is right for query i.
    """

    texts: list[str]
    rows: Rows
    source: Int64[np.ndarray, "B"]
    right: Callable[[int, Sequence[int]], bool]


def compare_with_baselines(
    config: ConfigDict,
    inputs: Inputs,
    start: EmbeddedCorpus,
    trained: EmbeddedCorpus,
    questions: Sequence[Question] = (),
    question_embedder: Parameters | None = None,
) -> dict[str, Any]:
    """Success@k of BM25, the start, the trained encoder and the hybrid, over the whole corpus.

    A held-out sentence succeeds if one of the first k passages is its known evidence; where no
    evidence is known, if one of them, other than its own passage, has the hidden words. A question
    succeeds if one of them has an accepted answer.

    Args:
      config: of the run.
      inputs: of the run.
      start: the corpus as the encoder embeds it before training.
      trained: the same after training.
      questions: none: their column is left out.
      question_embedder: params that embed questions after training; None: those of passages.

    Returns:
      `k`; and `held_out` and `questions`, each with the number of `queries` and the success by
      retriever (`LABELS`). Sets without queries are left out.
    """
    sets: dict[str, tuple[_Queries, Parameters | None]] = {
        "held_out": (_held_out(inputs, config.evaluation.queries), None)
    }
    if questions:
        length = config.lengths.query
        sets["questions"] = (_questions(inputs, questions, length), question_embedder)
    k, words = config.evaluation.recall_k, Bm25.open(inputs.knowledge)
    found: dict[str, Any] = {"k": k}
    for name, (queries, embedder) in sets.items():
        if not queries.texts:  # no passage of a small corpus may be held out
            continue
        ids, scores = words.search(queries.texts, DEPTH)
        by_words = np.where(scores > 0, ids, NO_PASSAGE), scores
        after = trained.ranking(queries.rows, DEPTH, embedder)
        hits = {
            "bm25": by_words[0],
            "start": start.hits(queries.rows, DEPTH),
            "realm": after[0],
            "hybrid": Fusion()(after, by_words, DEPTH)[0],
        }
        shares = {kind: float(_success(queries, one, k).mean()) for kind, one in hits.items()}
        found[name] = {"queries": len(queries.texts), **shares}
    return found


def _success(queries: _Queries, hits: Hits, k: int) -> Bool[np.ndarray, "B"]:
    """Whether one of the first k hits of each query, other than its source, is right."""
    kept = [
        [i for i in row if i not in (NO_PASSAGE, source)][:k]
        for row, source in zip(hits.tolist(), queries.source.tolist(), strict=True)
    ]
    return np.array([queries.right(number, row) for number, row in enumerate(kept)])


def _held_out(inputs: Inputs, count: int) -> _Queries:
    text, store = inputs.held_out.first(count), inputs.knowledge
    known = np.flatnonzero(text.evidence >= 0)
    if len(known):
        text = jax.tree.map(lambda part: part[known], text)

    def right(number: int, passages: Sequence[int]) -> bool:
        if len(known):
            return int(text.evidence[number]) in passages
        hidden = text.targets[number][text.weights[number] > 0].tolist()
        return any(_has(store.body_ids(passage).tolist(), hidden) for passage in passages)

    words = store.vocabulary
    texts = [
        words.decode([piece for piece in row if piece not in words.special])
        for row in text.queries.ids.tolist()
    ]
    source = np.full(len(texts), -1) if len(known) else text.source
    return _Queries(texts, text.queries, source, right)


def _has(pieces: list[int], part: list[int]) -> bool:
    """Whether `part` is a contiguous part of `pieces`; its last word may be longer there."""
    size = len(part)
    return any(pieces[start : start + size] == part for start in range(len(pieces) - size + 1))


def _questions(inputs: Inputs, questions: Sequence[Question], length: int) -> _Queries:
    store, texts = inputs.knowledge, [question.text for question in questions]
    answers = [accepted(question) for question in questions]
    return _Queries(
        texts,
        question_rows(texts, store.vocabulary, length),
        np.full(len(texts), -1),
        lambda number, passages: any(contains_answer(answers[number], store, i) for i in passages),
    )


def baselines_table(run: RunData) -> list[list[str]]:
    """The head and the rows of the table of `compare_with_baselines`; empty if not measured."""
    found = run.measured.get("baselines") or {}
    sets = [name for name in SETS if name in found]
    if not sets:
        return []
    head = ["retriever", *(f"{SETS[name]} ({found[name]['queries']})" for name in sets)]
    rows = [
        [label, *(f"{found[name][retriever]:.1%}" for name in sets)]
        for retriever, label in LABELS.items()
    ]
    return [head, *rows]


def baselines_section(run: RunData) -> list[Element]:
    """The table of `compare_with_baselines`, and what follows from it; empty if not measured."""
    head, *rows = baselines_table(run) or [[]]
    if not rows:
        return []
    found = run.measured["baselines"]
    note = (
        f"Share with a right passage among the first {found['k']}; exact search over the whole "
        "knowledge corpus. A held-out sentence needs its known evidence, or another passage with "
        "the hidden words; a question needs a passage with an accepted answer. "
    )
    advice = _why_not_kept(run)
    advice += " ".join(_advice(SETS[name], found[name]) for name in SETS if name in found)
    numbers = tuple(range(1, len(head)))
    return [table(head, rows, numbers), element("p", note + advice, class_="note")]


def _why_not_kept(run: RunData) -> str:
    """Why the export has the encoder as it was before training; empty if it has the trained one."""
    if run.last("realm", "embedder_kept") != 0.0:
        return ""
    utility, trained = (
        run.last("realm", name) for name in ("held_out_retrieval_utility", "trained_steps")
    )
    after = "" if trained is None else f" after {trained:.0f} steps"
    return (
        f"Retrieval utility on held-out text is {utility:+.2f}{after}, below "
        f"stages.realm.least_utility = {run.config.stages.realm.least_utility}: passages help too "
        "little to fill blanks, so the encoder is exported as it was before training. "
    )


def _advice(name: str, shares: dict[str, Any]) -> str:
    most = max(shares[retriever] for retriever in LABELS)
    best = [retriever for retriever in LABELS if shares[retriever] == most]
    if most == 0:
        return f"On {name}, no retriever finds a right passage."
    if best == ["start", "realm"]:
        return f"On {name}, the encoder is best; training did not change its share."
    if len(best) > 1:
        labels = "; ".join(LABELS[retriever] for retriever in best)
        return f"On {name}, several have the same largest share: {labels}."
    follows = {
        "bm25": "BM25 is best: use --retriever=bm25, or train longer.",
        "start": "training made the encoder worse: use it untrained (realm run --config=as_is).",
        "realm": "the trained encoder is best.",
        "hybrid": "both together are best: use --retriever=hybrid.",
    }
    return f"On {name}, {follows[best[0]]}"
