"""Recall@5 of retrievers without training over the whole Z: the encoder, BM25, and both."""

import threading
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax.cli.jobs import run_both
from realm_jax.data.answers import accepted, contains_answer
from realm_jax.data.open_qa import Question, question_rows
from realm_jax.inference.answerer import Answerer
from realm_jax.retrieval.encoder import MAX_QUERIES
from realm_jax.retrieval.fusion import Fusion
from table2_small.all_questions import JUDGED
from table2_small.bits import bits
from table2_small.measure import RECALL_K
from table2_small.questions import read_kept
from table2_small.run_from_start import answers_config

RETRIEVERS = {
    "start": ("dense", Fusion()),
    "bm25": ("bm25", Fusion()),
    "start_hybrid": ("hybrid", Fusion()),
    "start_reciprocal_ranks": ("hybrid", Fusion("reciprocal_rank")),
}


def measure_untrained(home: Path, base: ConfigDict, stop: threading.Event) -> dict[str, Any]:
    """Indexes the whole Z with the encoder as it comes, and searches for every question.

    Args:
      home: folder of all runs; see `run_from_start.prepare`.
      base: the base config.
      stop: ends the indexing; another call resumes it.

    Returns:
      `by_question`: by retriever and set, whether one of the five best passages has an accepted
      answer; see `bits.bits`.
    """
    config = answers_config(base, home, Path(base.model.start))
    config.stages.qa.steps = 0
    workdir = str(home / "untrained")
    run_both(workdir, config, stop)
    answerer = Answerer.open(workdir)
    found: dict[str, dict[str, str]] = {}
    for name in JUDGED:
        questions = read_kept(home, name)
        for kind, (retriever, fusion) in RETRIEVERS.items():
            right = _right(answerer.by(retriever, fusion), questions)
            found.setdefault(kind, {})[name] = bits(right)
    return {"by_question": found}


def _right(answerer: Answerer, questions: list[Question]) -> list[bool]:
    words, right = answerer.store.vocabulary, []
    for at in range(0, len(questions), MAX_QUERIES):
        part = questions[at : at + MAX_QUERIES]
        texts = [question.text for question in part]
        rows = question_rows(texts, words, answerer.config.lengths.query)
        found, _ = answerer.retrieve(texts, rows, RECALL_K)
        for question, passages in zip(part, found.tolist(), strict=True):
            finder = accepted(question)
            right.append(any(contains_answer(finder, answerer.store, one) for one in passages))
    return right
