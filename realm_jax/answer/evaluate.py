"""How well a run answers: exact match and recall of questions, and what it knows by heart."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from realm_jax.answer.answerer import Answerer
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.open_qa import Question, question_rows
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows
from realm_jax.metrics import exact_match, recall_at
from realm_jax.models.modules import Modules

_BATCH = 64
_RECALLS = (1, 5, 20)


def evaluate(
    answerer: Answerer, questions: list[Question], predictions: Path | None = None
) -> dict[str, Any]:
    """Exact match over questions, and recall@k of the passage known to hold the answer.

    Args:
      answerer: of a finished run.
      questions: with accepted answers.
      predictions: a file for one JSON line per question, or None.
    """
    answers = []
    for start in range(0, len(questions), _BATCH):
        some = [question.text for question in questions[start : start + _BATCH]]
        padded = some + [some[-1]] * (_BATCH - len(some))  # one shape, so one trace
        answers += answerer.ask_all(padded)[: len(some)]
    right = [
        exact_match(a.answer, list(q.answers)) for a, q in zip(answers, questions, strict=True)
    ]
    if predictions is not None:
        lines = [
            json.dumps(
                {"question": q.text, "answers": q.answers, "prediction": a.answer, "right": r},
                ensure_ascii=False,
            )
            for q, a, r in zip(questions, answers, right, strict=True)
        ]
        predictions.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recalls = _recall(answerer, questions)
    return {"questions": len(questions), "exact_match": float(np.mean(right)), "recall_at": recalls}


def _recall(answerer: Answerer, questions: list[Question]) -> dict[str, float]:
    known = [question for question in questions if question.evidence >= 0]
    if not known:
        return {}
    length = answerer.config.lengths.query
    rows = question_rows([q.text for q in known], answerer.store.vocabulary, length)
    found, _ = answerer.retrieve(rows, min(max(_RECALLS), answerer.index.searcher.size))
    gold = np.array([question.evidence for question in known])
    return {str(k): float(recall_at(found, gold, k).mean()) for k in _RECALLS}


def closed_book(answerer: Answerer, text: MaskedText) -> float:
    """Exact match of the pre-trained reader on masked sentences with no passage but the null one.

    A generous bound on what the model knows by heart: it is told how many pieces the answer has.
    """
    modules = Modules(answerer.config.model, answerer.store.vocabulary.size, ("reader",))
    parameters = jax.device_put(answerer.export.networks["reader"])
    null = np.full((len(text.own), 1), NULL_PASSAGE, np.int64)
    joint = joint_rows(text.queries, answerer.store, null, answerer.config.lengths.joint)

    @jax.jit
    def said(parameters: Any, rows: Rows, positions: Any) -> Any:
        reader = modules.bind({"reader": parameters}).reader
        return reader.mlm_logits(*rows, positions).argmax(-1)

    guesses = said(parameters, Rows(*(part[:, 0] for part in joint)), text.positions)
    right = (np.asarray(guesses) == text.targets) | (text.weights == 0)
    return float(right.all(-1).mean())
