"""Open-QA fine-tuning of a pre-trained run on its final index, as in ORQA."""

import logging
import threading
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float16
from ml_collections import ConfigDict

from realm_jax.artifacts.params import hash_of
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.artifacts.required import checkpoint_manifests
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.open_qa import QuestionSource, question_rows, questions_hash
from realm_jax.data.question_checks import Question
from realm_jax.errors import InputError, MismatchError
from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import gather_to_host
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.init_params import pretrained_reader, require_reader_run
from realm_jax.trainer.inputs import Inputs
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.loop import train
from realm_jax.trainer.publisher import NoPublisher
from realm_jax.trainer.qa_stage import QaStage

log = logging.getLogger(__name__)


def fine_tune(
    run_dir: RunDir,
    config: ConfigDict,
    inputs: Inputs,
    mesh: Mesh,
    params: Parameters,
    index: PublishedIndex,
    stop: threading.Event,
) -> Parameters:
    """Trains question embedder, reader and span head; the passage vectors stay fixed.

    Args:
      run_dir: the run folder.
      config: the run's config.
      inputs: the knowledge corpus and the questions.
      mesh: the devices.
      params: pre-trained params of embedder, reader and span head.
      index: the final index.
      stop: the stop signal.

    Returns:
      Params of `question_embedder`, `question_reader` and `span_head`, on the host.

    Raises:
      MismatchError: the run was fine-tuned before on other questions, from another reader or with
        another retriever.
      InputError: the run was fine-tuned on this index for more steps than the config asks for.
      Stopped: the stop signal came; a checkpoint is saved.
    """
    settings = config.stages.qa
    other_reader = pretrained_reader(settings.reader_from, config)
    fields = _fields(config, inputs.questions, index.step, other_reader)
    hosts.agreed(
        "fine-tuning start",
        index.step,
        lambda: _check_checkpoints(run_dir, fields, settings.steps),
    )
    stage = QaStage(config, inputs.knowledge.vocabulary.size, _searched(config, inputs, index))
    params = params | other_reader
    trained = train(
        run_dir,
        config,
        stage,
        {name: params[name] for name in stage.modules.names},
        mesh,
        stop,
        NoPublisher(),
        lambda step: fields,
    )
    tuned = gather_to_host(mesh, trained)
    return {
        "question_embedder": tuned["embedder"],
        "question_reader": tuned["reader"],
        "span_head": tuned["span_head"],
    }


def by_module(question_networks: Parameters) -> Parameters:
    """The networks of an export that answer questions, by the modules that fine-tuning trains."""
    return {name.removeprefix("question_"): of for name, of in question_networks.items()}


def was_fine_tuned(run_dir: RunDir) -> bool:
    """Whether the run has an export and a fine-tuning: starts without questions keep them."""
    parents = (run_dir.export, run_dir.checkpoints("qa"))
    return all(commit.latest(parent) is not None for parent in parents)


def check_fine_tuning(run_dir: RunDir, config: ConfigDict, questions: list[Question]) -> None:
    """Raises the errors of `fine_tune` that are known before a run writes anything."""
    settings = config.stages.qa
    if settings.reader_from:
        require_reader_run(settings.reader_from, config)
    if commit.latest(run_dir.checkpoints("qa")) is not None:
        other_reader = pretrained_reader(settings.reader_from, config)
        final_index = config.stages.realm.steps
        fields = _fields(config, questions, final_index, other_reader)
        _check_same_start(run_dir, fields, settings.steps)


def _fields(
    config: ConfigDict, questions: list[Question], index_step: int, other_reader: Parameters
) -> dict[str, Any]:
    """The fields in the manifests of checkpoints that say what the fine-tuning starts from."""
    return {
        "questions": questions_hash(questions),
        "index_step": index_step,
        "retriever": config.stages.qa.retriever,
        "reader_from": hash_of(other_reader) if other_reader else "",
    }


def _check_questions(run_dir: RunDir, expected: str) -> None:
    for manifest in checkpoint_manifests(run_dir, "qa"):
        if manifest.get("questions") != expected:
            raise MismatchError(
                "this run was fine-tuned on other questions",
                where=run_dir.checkpoints("qa"),
                expected=manifest.get("questions"),
                found=expected,
                fix="use the same questions, or move checkpoints/qa out of the workdir",
            )


def _check_checkpoints(run_dir: RunDir, fields: dict[str, Any], steps: int) -> None:
    """Fine-tuning on an older index starts again, with the index of further pre-training.

    Only process 0 calls it: no other one may read the checkpoints that it deletes.

    Raises: see `_check_same_start`.
    """
    _check_same_start(run_dir, fields, steps)
    index_step = fields["index_step"]
    tuned_on = _tuned_on(run_dir, index_step)
    if tuned_on - {index_step}:
        log.warning(
            "fine-tuning starts again: its checkpoints used the index of step %d, and the run has "
            "since been pre-trained to step %d",
            min(tuned_on),
            index_step,
        )
        files.delete_tree(run_dir.checkpoints("qa"))


def _tuned_on(run_dir: RunDir, index_step: int) -> set[int]:
    """Steps of the indexes of all checkpoints; `index_step` for those that do not record it."""
    return {m.get("index_step", index_step) for m in checkpoint_manifests(run_dir, "qa")}


def _check_same_start(run_dir: RunDir, fields: dict[str, Any], steps: int) -> None:
    """Checks that checkpoints can be continued, or are of an older index and will be deleted.

    Raises:
      MismatchError: the questions, or on this index `retriever` or `reader_from`, were others.
      InputError: the run was fine-tuned on this index for more than `steps` steps.
    """
    _check_questions(run_dir, fields["questions"])
    if _tuned_on(run_dir, fields["index_step"]) - {fields["index_step"]}:
        return
    _check_settings(run_dir, fields)
    done = commit.latest(run_dir.checkpoints("qa"))
    if done is not None and done > steps:
        raise InputError(
            "the run was fine-tuned for more steps than the config asks for",
            where=run_dir.checkpoints("qa"),
            expected=f"step {steps} (config.stages.qa.steps)",
            found=f"step {done}",
            fix=f"--config.stages.qa.steps={done}, or more; to fine-tune again from the start, "
            "move checkpoints/qa out of the workdir",
        )


def _check_settings(run_dir: RunDir, fields: dict[str, Any]) -> None:
    for manifest in checkpoint_manifests(run_dir, "qa"):
        for key in ("retriever", "reader_from"):
            before = manifest.get(key, fields[key])  # earlier versions did not record it
            if before != fields[key]:
                raise MismatchError(
                    f"this run was fine-tuned with another stages.qa.{key}",
                    where=run_dir.checkpoints("qa"),
                    expected=before or "the reader of this run",
                    found=fields[key] or "the reader of this run",
                    fix="use the same, or move checkpoints/qa out of the workdir",
                )


def _searched(config: ConfigDict, inputs: Inputs, index: PublishedIndex) -> QuestionSource:
    """The questions with their retrieved passages."""
    store, questions = Knowledge(inputs.knowledge, config).of(index), inputs.questions
    stage, texts = config.stages.qa, [question.text for question in questions]
    log.info("searching %d passages for %d questions", index.searcher.size, len(questions))
    if stage.retriever == "bm25":
        hits, _ = Bm25.open(store).search(texts, stage.retriever_passages)
    else:
        rows = question_rows(texts, store.vocabulary, config.lengths.query)
        embedded = EmbedderRows(config, store.vocabulary).queries(rows)
        retriever = HostRetriever(config, store.vocabulary.size)
        hits = retriever.hits(index, embedded, stage.retriever_passages)
    return QuestionSource(questions, hits, _vectors_by_passage(index), store, config)


def _vectors_by_passage(index: PublishedIndex) -> Float16[np.ndarray, "N E"]:
    if np.array_equal(index.rows, np.arange(len(index.rows))):
        return index.vectors
    by_passage = np.zeros((int(index.rows.max()) + 1, index.vectors.shape[1]), np.float16)
    by_passage[index.rows] = index.vectors
    return by_passage
