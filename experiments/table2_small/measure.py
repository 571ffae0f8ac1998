"""Measures a finished run: recall before fine-tuning, exact match, retrieval utility."""

import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.corpus.store import PassageStore
from realm_jax.data.answers import accepted, contains_answer
from realm_jax.data.open_qa import question_rows
from realm_jax.data.question_checks import Question
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.evaluate import evaluate
from realm_jax.parallel.sharding import one_device_mesh
from realm_jax.report.run_data import read_run
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.retriever import Retriever
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.evaluation import Evaluation
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.init_params import pretrained_reader
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.realm_stage import RealmStage
from table2_small.examples import examples
from table2_small.questions import ANSWERED, DEV, EVALUATED, read_kept

RECALL_K = 5
MAX_SENTENCES = 1024  # masked sentences for the final retrieval utility
MAX_QUESTIONS = 1000  # questions per set for exact match, the first ones


def measure_run(workdir: Path, config: ConfigDict, base: ConfigDict, home: Path) -> dict[str, Any]:
    """The metrics of one run, computed in the same way for every row.

    Args:
      workdir: folder of the finished run.
      config: config of the run.
      base: config of row `realm`, whose held-out sentences and masks are used for all rows.
      home: folder with the kept questions.

    Returns:
      `recall_at_5` of NQ dev with the retriever before fine-tuning, and `recall_of` every set;
      `own_recall_at_5`: of masked held-out sentences, how often the beginning of their own article
      is found; `exact_match`, `reader_oracle`, `recall_at_5_tuned` of NQ dev after fine-tuning,
      `exact_match_of` every set that is answered and `exact_match_of_all` their questions;
      `retrieval_utility` in nats per piece on held-out sentences, and its `curve` over the steps;
      `examples`, for runs that read with their own reader; `seconds` by stage.
    """
    answerer = Answerer.open(str(workdir))
    store, index = answerer.store, answerer.index
    assert isinstance(index, PublishedIndex)
    retriever = HostRetriever(config, store.vocabulary.size)
    recalls = {
        name: zero_shot_recall(retriever, index, store, read_kept(home, name), config.lengths.query)
        for name in EVALUATED
    }
    answered = {
        name: evaluate(answerer, read_kept(home, name)[:MAX_QUESTIONS]) for name in ANSWERED
    }
    tuned, exact = answered[DEV], {name: one["exact_match"] for name, one in answered.items()}
    finished = read_run(str(workdir))
    held_out = _on_held_out(workdir, config, base, answerer)
    return {
        "recall_at_5": recalls[DEV],
        "exact_match": exact[DEV],
        "exact_match_of": exact,
        "exact_match_of_all": float(
            np.average(
                list(exact.values()), weights=[one["questions"] for one in answered.values()]
            )
        ),
        "recall_of": recalls,
        **held_out,
        "reader_oracle": tuned["reader_oracle"],
        "recall_at_5_tuned": tuned["recall_at"][str(RECALL_K)],
        "curve": finished.values("realm", "held_out_retrieval_utility"),
        "own_curve": finished.values("realm", f"held_out_recall_at_{RECALL_K}"),
        "seconds": finished.stage_seconds,
        "index_seconds": sum(record["seconds"] for record in finished.refreshes),
        "config_hash": config_lib.model_hash(config),
    }


def zero_shot_recall(
    retriever: Retriever,
    index: PublishedIndex,
    store: PassageStore,
    questions: list[Question],
    length: int,
) -> float:
    """Share of questions whose answer is said in one of the five best passages."""
    rows = question_rows([q.text for q in questions], store.vocabulary, length)
    found = retriever.hits(index, rows, RECALL_K)
    right = [
        any(contains_answer(finder, store, passage) for passage in passages)
        for finder, passages in zip(map(accepted, questions), found.tolist(), strict=True)
    ]
    return float(np.mean(right))


def _on_held_out(
    workdir: Path, config: ConfigDict, base: ConfigDict, answerer: Answerer
) -> dict[str, Any]:
    """What masked sentences that were not trained on say, with the index of the end."""
    same = ConfigDict(config.to_dict())
    for part in ("masking", "objective", "retrieval", "search"):
        same[part] = base[part]
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
