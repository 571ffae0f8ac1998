"""JOB 1: the trainer, stage after stage, from text to an export that answers."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.export import publish_export
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.data.open_qa import QuestionSource, question_rows, questions_hash
from realm_jax.errors import MismatchError, Stopped
from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import check_batches, gather_to_host, make_mesh, packing_groups
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.storage import commit, files, follow, heartbeat
from realm_jax.storage.layout import RunDir
from realm_jax.storage.locks import job_lock
from realm_jax.trainer.checkpoint import final_parameters, kept_fields
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.index_wait import WaitInterrupted
from realm_jax.trainer.init_params import initial_params, pretrained_reader
from realm_jax.trainer.inputs import Inputs, open_inputs, warn_truncated_passages
from realm_jax.trainer.loop import train
from realm_jax.trainer.publisher import NoPublisher, Publisher
from realm_jax.trainer.qa_stage import QaStage
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.resume import (
    check_run_config,
    check_steps_not_reduced,
    read_swaps,
    require_pretrained,
    required_indexes,
    save_run_config,
)
from realm_jax.trainer.stage import IctStage, ReaderStage, Stage
from realm_jax.trainer.swap_log import SwapLog

log = logging.getLogger(__name__)
JOB = "trainer"
STAGES = ("reader", "ict", "realm", "qa")  # of a run; the tagger is trained in one of its own


def run(
    workdir: str,
    config: ConfigDict,
    stop: threading.Event,
    beside: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Trains every stage that has steps; rerun it to go on where it stopped.

    Args:
      workdir: the run folder.
      config: of the run.
      stop: ends the run so that the same call goes on.
      beside: what works on the run meanwhile; entered once the run is this trainer's.

    Raises:
      Stopped: SIGTERM or SIGINT came; all is saved.
      RealmError: see the message.
    """
    open_inputs(config)
    mesh_of(config)  # what is asked for can be done: before anything is written
    files.check_writable(RunDir(workdir).root)
    with _alone(RunDir(workdir), stop) as stop_or_lost:
        job = _Job(workdir, config, stop_or_lost)
        job.claim()
        if hosts.is_leader():
            warn_truncated_passages(job.inputs.knowledge, config)
        with beside():
            job.say("start", 0)
            job.warm_start()
            job.realm()
            job.finish()
            job.say("done", config.stages.realm.steps)


def _alone(run_dir: RunDir, stop: threading.Event) -> AbstractContextManager[threading.Event]:
    """Of several processes that train as one, the first speaks for all."""
    return job_lock(run_dir, JOB, stop) if hosts.is_leader() else nullcontext(stop)


def finetune(workdir: str, config: ConfigDict, stop: threading.Event) -> int:
    """Open-QA fine-tuning of a run whose pre-training is finished; returns the export's step.

    Raises:
      InputError: the run has no finished pre-training.
      Stopped: SIGTERM or SIGINT came; all is saved.
    """
    open_inputs(config)
    require_pretrained(RunDir(workdir), config)
    with _alone(RunDir(workdir), stop) as stop_or_lost:
        job = _Job(workdir, config, stop_or_lost)
        job.claim()
        pretrained = final_parameters(job.run_dir, "realm")
        assert pretrained is not None
        read = final_parameters(job.run_dir, "reader")
        job.networks |= (read[1] if read else {}) | pretrained[1]
        step = job.finish()
        job.say("done", config.stages.realm.steps)
        return step


def open_stages(workdir: str, config: ConfigDict) -> tuple[dict[str, Stage], Parameters, Mesh]:
    """Stages whose batches can be run without an index, by name; first parameters; the mesh."""
    job = _Job(workdir, config, threading.Event())
    store, text = job.inputs.knowledge, job.inputs.text
    realm = RealmStage(config, store, text, job.inputs.held_out, job.index([]))
    stages = (IctStage(config, store), ReaderStage(config, store, text), realm)
    return {stage.name: stage for stage in stages}, job.networks, job.mesh


class _Job:
    """The parameters on their way through the stages, and what all stages share."""

    def __init__(self, workdir: str, config: ConfigDict, stop: threading.Event):
        self.config, self.stop, self.run_dir = config, stop, RunDir(workdir)
        self.inputs: Inputs = open_inputs(config)
        self.mesh: Mesh = mesh_of(config)
        self.groups = packing_groups(self.mesh, config)
        check_run_config(self.run_dir, config)
        self._vocabulary = self.inputs.knowledge.vocabulary.size
        self.networks: Parameters = jax.device_get(initial_params(config, self.inputs))

    def save_run_config(self) -> None:
        """The run has this config from now on; an end that there is more to do after is gone."""
        if hosts.is_leader():
            check_steps_not_reduced(self.run_dir, self.config)
            save_run_config(self.run_dir, self.config)
            trained = commit.latest(self.run_dir.checkpoints("realm"))
            if trained is None or trained < self.config.stages.realm.steps:
                follow.clear_end(self.run_dir)
        hosts.all_gather("claimed", 0)

    def say(self, stage: str, step: int) -> None:
        """A sign of life."""
        if hosts.is_leader():
            heartbeat.beat(self.run_dir, JOB, stage=stage, step=step)

    def warm_start(self) -> None:
        """The reader by reading, the embedder by inverse cloze; each with its own optimiser."""
        store, text = self.inputs.knowledge, self.inputs.text
        self._train(ReaderStage(self.config, store, text), ("reader", "span_head"))
        if self.config.stages.ict.from_reader:
            self.networks["embedder"]["bert"] = self.networks["reader"]["bert"]
        self._train(IctStage(self.config, store, self.groups), ("embedder",))

    def realm(self) -> None:
        """Pre-training beside the index builder; afterwards the final index is waited for."""
        finished = final_parameters(self.run_dir, "realm")
        if finished is not None and finished[0] >= self.config.stages.realm.steps:
            self.networks |= finished[1]
            return
        fields = {"config_hash": config_lib.model_hash(self.config), "stage": "realm"}
        publisher = Publisher(
            self.run_dir,
            self.config.refresh.keep,
            config_lib.to_json(self.config),
            fields,
            self.mesh,
        )
        [swaps, *_] = hosts.all_gather("swaps", 0, read_swaps(self.run_dir))
        replay = [(first, index_step) for first, index_step in swaps]
        index = self.index(replay, publisher.check)
        stage = RealmStage(
            self.config,
            self.inputs.knowledge,
            self.inputs.text,
            self.inputs.held_out,
            index,
            self.mesh,
            self.groups,
        )
        try:
            self._train(stage, ("embedder", "reader"), publisher, _swaps_until(index))
        finally:
            stage.close()

    def finish(self) -> int:
        """Fine-tunes on the final index if there are questions, exports, and ends the run."""
        steps = self.config.stages.realm.steps
        if steps == 0:
            if hosts.is_leader():
                follow.mark_end(self.run_dir, step=0)
            return 0
        final = self.index([])
        try:
            index = final.wait_for(steps)
        except WaitInterrupted as error:
            raise Stopped("realm", steps) from error
        finally:
            final.close()
        networks, tuned = {name: self.networks[name] for name in ("embedder", "reader")}, 0
        if self.inputs.questions and self.config.stages.qa.steps:
            networks |= self._fine_tune(index)
            tuned = self.config.stages.qa.steps
        if hosts.is_leader():
            as_json = config_lib.to_json(self.config)
            publish_export(self.run_dir, steps + tuned, index.step, networks, as_json)
            follow.mark_end(self.run_dir, step=steps)
        return steps + tuned

    def _fine_tune(self, index: PublishedIndex) -> Parameters:
        """Question tower and reader; the passage vectors stay those of the index."""
        self._forget_other_tuning(index.step)
        retriever = HostRetriever(self.config, self._vocabulary)
        store, questions = self.inputs.knowledge, self.inputs.questions
        rows = question_rows(
            [q.text for q in questions], store.vocabulary, self.config.lengths.query
        )
        count = self.config.stages.qa.retriever_passages
        log.info("searching %d passages for %d questions", index.searcher.size, len(questions))
        source = QuestionSource(
            questions, retriever.hits(index, rows, count), _by_passage(index), store, self.config
        )
        stage = QaStage(self.config, self._vocabulary, source)
        self.networks |= pretrained_reader(self.config.stages.qa.reader_from, self.config)
        tuned = self._tune(stage, index.step)
        return {
            "question_embedder": tuned["embedder"],
            "question_reader": tuned["reader"],
            "span_head": tuned["span_head"],
        }

    def _forget_other_tuning(self, index_step: int) -> None:
        """Refuses other questions than were tuned on; tuning on an older index starts again."""
        asked = questions_hash(self.inputs.questions)
        for manifest in kept_fields(self.run_dir, "qa"):
            if manifest["questions"] != asked:
                raise MismatchError(
                    "this run was fine-tuned on other questions",
                    where=self.run_dir.checkpoints("qa"),
                    expected=manifest["questions"],
                    found=asked,
                    fix="give the first ones, or move checkpoints/qa and export/ away",
                )
        tuned_on = {m.get("index_step", index_step) for m in kept_fields(self.run_dir, "qa")}
        if tuned_on - {index_step}:
            log.warning(
                "fine-tuning starts again: it was on the index of step %d, and the run has been "
                "pre-trained to step %d since",
                min(tuned_on),
                index_step,
            )
            if hosts.is_leader():
                files.delete_tree(self.run_dir.checkpoints("qa"))
        hosts.all_gather("qa/begins", index_step)

    def _tune(self, stage: QaStage, index_step: int) -> Parameters:
        fields = {"questions": questions_hash(self.inputs.questions), "index_step": index_step}
        trained = train(
            self.run_dir,
            self.config,
            stage,
            {name: self.networks[name] for name in stage.modules.names},
            self.mesh,
            self.stop,
            NoPublisher(),
            lambda step: fields,
        )
        return gather_to_host(self.mesh, trained)

    def _train(
        self,
        stage: Any,
        names: tuple[str, ...],
        publisher: Publisher | NoPublisher | None = None,
        fields: Callable[[int], dict[str, Any]] = lambda step: {},
    ) -> None:
        if stage.settings.steps == 0:
            return
        began = time.monotonic()
        given = {name: self.networks[name] for name in names}
        publisher = NoPublisher() if publisher is None else publisher
        trained = train(
            self.run_dir, self.config, stage, given, self.mesh, self.stop, publisher, fields
        )
        self.networks |= gather_to_host(self.mesh, trained)
        log.info("stage %s: %.0f s", stage.name, time.monotonic() - began)

    def index(self, replay: SwapLog, check: Callable[[], None] = lambda: None) -> IndexManager:
        corpus_hash = self.inputs.knowledge.corpus_hash
        return IndexManager(
            self.run_dir,
            self.config,
            corpus_hash,
            replay,
            required=lambda: required_indexes(self.run_dir, self.config.refresh),
            stop=self.stop,
            mesh=self.mesh,
            check=check,
        )


def mesh_of(config: ConfigDict) -> Mesh:
    """The mesh of a run, once the batches of all its stages fit it."""
    mesh = make_mesh(config.mesh)
    taught = [name for name in STAGES if name != "qa" or config.corpus.questions]
    stages = {f"stages.{name}.batch": config.stages[name] for name in taught}
    batches = {key: stage.batch for key, stage in stages.items() if stage.steps}
    check_batches(mesh, batches, config.optimizer.accumulate_steps)
    packing_groups(mesh, config)
    return mesh


def _swaps_until(index: IndexManager) -> Callable[[int], dict[str, Any]]:
    """Checkpoint fields: the swaps of all steps before the checkpoint's, and none prefetched."""
    return lambda step: {"swaps": [list(swap) for swap in index.swaps if swap[0] <= step]}


def _by_passage(index: PublishedIndex) -> np.ndarray:
    """Frozen passage vectors by passage id."""
    if np.array_equal(index.rows, np.arange(len(index.rows))):
        return index.vectors
    by_passage = np.zeros((int(index.rows.max()) + 1, index.vectors.shape[1]), np.float16)
    by_passage[index.rows] = index.vectors
    return by_passage
