"""Measures a finished run: recall before fine-tuning, exact match, retrieval utility."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.answers import accepted, contains_answer
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.open_qa import question_rows
from realm_jax.data.question_checks import Question
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.evaluate import judge
from realm_jax.parallel.sharding import one_device_mesh
from realm_jax.report.run_data import read_run
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.evaluation import Evaluation
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.init_params import pretrained_reader
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.realm_stage import RealmStage
from table2_small.bits import bits
from table2_small.examples import examples
from table2_small.questions import DEV, read_kept

RECALL_K = 5
MAX_SENTENCES = 1024  # masked sentences for the final retrieval utility


@dataclass(frozen=True)
class Sets:
    """The question sets of an edition; see `questions.read_kept`.

    Attributes:
      evaluated: sets with recall.
      answered: sets with exact match.
      most: questions per set for exact match, the first ones; None: all.
    """

    evaluated: tuple[str, ...]
    answered: tuple[str, ...]
    most: int | None


def measure_run(
    workdir: Path, config: ConfigDict, base: ConfigDict, home: Path, sets: Sets
) -> dict[str, Any]:
    """The metrics of one run, computed in the same way for every row.

    Args:
      workdir: folder of the finished run.
      config: config of the run.
      base: the base config, whose held-out sentences and masks are used for all rows.
      home: folder with the kept questions.
      sets: the question sets.

    Returns:
      What `measure_questions` and `measure_text` return.
    """
    answerer = Answerer.open(str(workdir))
    questions = measure_questions(answerer, config, home, sets)
    return questions | measure_text(workdir, config, base, answerer)


def measure_questions(
    answerer: Answerer, config: ConfigDict, home: Path, sets: Sets
) -> dict[str, Any]:
    """Recall before fine-tuning and exact match after it.

    Returns:
      `recall_at_5` of NQ dev with the retriever before fine-tuning, and `recall_of` every set;
      `exact_match`, `reader_oracle`, `recall_at_5_tuned` of NQ dev after fine-tuning,
      `exact_match_of` every set that is answered and `exact_match_of_all` their questions;
      `by_question`: recall@5 and exact match of each question, see `bits.bits`.
    """
    answerer = answerer.by(config.stages.qa.retriever)
    found = {name: zero_shot(config, answerer, read_kept(home, name)) for name in sets.evaluated}
    answered = {
        name: judge(answerer, read_kept(home, name)[: sets.most], deepest=RECALL_K)
        for name in sets.answered
    }
    right = {name: [one.right for one in judged] for name, judged in answered.items()}
    recalls = {name: float(np.mean(values)) for name, values in found.items()}
    exact = {name: float(np.mean(values)) for name, values in right.items()}
    ranks = [one.answer_rank for one in answered[DEV]]
    return {
        "recall_at_5": recalls[DEV],
        "exact_match": exact[DEV],
        "exact_match_of": exact,
        "exact_match_of_all": float(np.mean([one for values in right.values() for one in values])),
        "recall_of": recalls,
        "by_question": {
            "recall_at_5": {name: bits(values) for name, values in found.items()},
            "exact_match": {name: bits(values) for name, values in right.items()},
        },
        "reader_oracle": float(np.mean([one.readable for one in answered[DEV]])),
        "recall_at_5_tuned": float(
            np.mean([rank is not None and rank <= RECALL_K for rank in ranks])
        ),
    }


def measure_text(
    workdir: Path, config: ConfigDict, base: ConfigDict, answerer: Answerer
) -> dict[str, Any]:
    """What a run says about masked sentences, and its times.

    Returns:
      `own_recall_at_5`: of masked held-out sentences, how often the passage known to state them
      is found; `retrieval_utility` in nats per piece on held-out sentences, and its `curve` over
      the steps; `examples`, for runs that read with their own reader; `seconds` by stage.
    """
    finished = read_run(str(workdir))
    return {
        **_on_held_out(workdir, config, base, answerer),
        "curve": finished.values("realm", "held_out_retrieval_utility"),
        "own_curve": finished.values("realm", f"held_out_recall_at_{RECALL_K}"),
        "seconds": finished.stage_seconds,
        "index_seconds": sum(record["seconds"] for record in finished.refreshes),
        "config_hash": config_lib.model_hash(config),
    }


def zero_shot(config: ConfigDict, answerer: Answerer, questions: list[Question]) -> list[bool]:
    """Of each question, whether one of the five best passages before fine-tuning says its answer.

    Args:
      config: of the run.
      answerer: its index and corpus.
      questions: with accepted answers.
    """
    index, store = answerer.index, answerer.store
    assert isinstance(index, PublishedIndex)
    texts = [question.text for question in questions]
    if config.stages.qa.retriever == "bm25":
        found, _ = answerer.bm25().search(texts, RECALL_K)
    else:
        rows = question_rows(texts, store.vocabulary, config.lengths.query)
        queries = EmbedderRows(config, store.vocabulary).queries(rows)
        found = HostRetriever(config, store.vocabulary.size).hits(index, queries, RECALL_K)
    return [
        any(contains_answer(finder, store, passage) for passage in passages)
        for finder, passages in zip(map(accepted, questions), found.tolist(), strict=True)
    ]


def _on_held_out(
    workdir: Path, config: ConfigDict, base: ConfigDict, answerer: Answerer
) -> dict[str, Any]:
    """Metrics of masked sentences that were not trained on, with the final index."""
    same = ConfigDict(config.to_dict())
    for part in ("masking", "retrieval", "search"):
        same[part] = base[part]
    loss = {name: base.stages.realm[name] for name in ("marginal", "retriever_loss")}
    same.stages.realm.update(loss)
    same.lengths.masks = base.lengths.masks
    same.corpus.update(pretraining=base.corpus.pretraining, spans=base.corpus.spans)
    same.evaluation.queries = MAX_SENTENCES
    same = config_lib.check(same)
    inputs = open_inputs(same)
    index = IndexManager(
        RunDir(workdir),
        same,
        {inputs.knowledge.corpus_hash}.__contains__,
        [],
        required=set,
        stop=threading.Event(),
    )
    stage = RealmStage(same, inputs.knowledge, inputs.text, inputs.held_out, index)
    networks = answerer.export.networks
    others = pretrained_reader(config.stages.qa.reader_from, config)
    parameters = {"embedder": networks["embedder"], "reader": networks["reader"], **others}
    try:
        searched = index.wait_for(answerer.export.index_step)
        evaluation = Evaluation(same, stage, one_device_mesh())
        figures = stage.evaluate_with(searched, 0, jax.device_put(parameters), evaluation)
    finally:
        stage.close()
    text = inputs.held_out.first(same.evaluation.queries)
    found = {
        "retrieval_utility": figures["held_out_retrieval_utility"],
        "own_recall_at_5": figures[f"held_out_recall_at_{same.evaluation.recall_k}"],
    }
    return found if others else {**found, "examples": examples(answerer, text)}
