"""JOB 1, the trainer: runs the stages in order, from masked text to an export."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.export import publish_export, publishes
from realm_jax.artifacts.published_index import PublishedIndex
from realm_jax.artifacts.required import read_swaps, required_indexes
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.errors import Stopped
from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.parallel.connections import connect
from realm_jax.parallel.sharding import gather_to_host, param_shardings, shard_arrays
from realm_jax.runtime import warn_if_bits_differ
from realm_jax.storage import commit, files, follow, heartbeat
from realm_jax.storage.layout import VOCABULARY, RunDir, step_name
from realm_jax.storage.locks import job_lock, still_allowed
from realm_jax.trainer.checkpoint import params_at
from realm_jax.trainer.fine_tuning import by_module, fine_tune, was_fine_tuned
from realm_jax.trainer.ict_stage import IctStage
from realm_jax.trainer.index_manager import IndexManager, trainer_lease
from realm_jax.trainer.index_wait import WaitInterrupted
from realm_jax.trainer.init_params import initial_params, run_modules
from realm_jax.trainer.inputs import corpora_of, warn_truncated_passages
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.loop import train
from realm_jax.trainer.prepare import MODULES, PreparedRun, prepare
from realm_jax.trainer.publisher import NoPublisher, Publisher, probe_queries
from realm_jax.trainer.reader_stage import ReaderStage
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.resume import (
    CONTINUES,
    check_steps_not_reduced,
    other_settings,
    save_corpora,
    save_run_config,
)
from realm_jax.trainer.same_inputs import inputs_of, require_same_inputs
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.swap_log import SwapLog

log = logging.getLogger(__name__)
JOB = "trainer"


def run(
    workdir: str,
    config: ConfigDict,
    stop: threading.Event,
    background: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Trains every stage that has steps. The same call resumes a run that was stopped.

    Args:
      workdir: the run folder.
      config: the run's config.
      stop: the stop signal; a checkpoint is saved and `Stopped` raised.
      background: context in which the stages run, such as a running index builder; entered once
        this trainer holds the run's lock.

    Raises:
      Stopped: the stop signal came; a checkpoint is saved.
      RealmError: see `prepare`, or an error of a stage.
    """
    prepared = prepare(workdir, config)
    with _trainer_lock(prepared.run_dir, stop) as stop_or_lost:
        training = _Training(prepared, stop_or_lost)
        training.claim()
        if hosts.is_leader():
            warn_truncated_passages(prepared.inputs.knowledge, config)
        with background():
            training.beat("start", 0)
            training.warm_start()
            training.pretrain()
            training.finish()
            training.beat("done", config.stages.realm.steps)


def finetune(workdir: str, config: ConfigDict, stop: threading.Event) -> int:
    """Fine-tunes a pre-trained run on questions and exports it; returns the export's step.

    Raises:
      InputError: the run has not finished pre-training.
      Stopped: the stop signal came; a checkpoint is saved.
    """
    prepared = prepare(workdir, config, ("qa",))
    with _trainer_lock(prepared.run_dir, stop) as stop_or_lost:
        training = _Training(prepared, stop_or_lost)
        training.claim()
        training.beat("start", 0)
        pretrained = _newest_params(prepared.run_dir, "realm")
        assert pretrained is not None
        reader = _newest_params(prepared.run_dir, "reader")
        training.replace((reader[1] if reader else {}) | pretrained[1])
        training.publish_lost_snapshot()
        step = training.finish()
        training.beat("done", config.stages.realm.steps)
        return step


def _trainer_lock(
    run_dir: RunDir, stop: threading.Event
) -> AbstractContextManager[threading.Event]:
    """Process 0 takes the lock for all processes."""
    return job_lock(run_dir, JOB, stop) if hosts.is_leader() else nullcontext(stop)


def _newest_params(run_dir: RunDir, stage: str) -> tuple[int, Parameters] | None:
    """Step and params of a stage's newest checkpoint, which process 0 finds for all."""
    parent = run_dir.checkpoints(stage)
    step = hosts.agreed(f"{stage}/newest", 0, lambda: commit.latest(parent))
    return None if step is None else (step, params_at(run_dir, stage, step))


class _Training:
    """The params of a run, on the mesh, as its stages train them."""

    def __init__(self, prepared: PreparedRun, stop: threading.Event):
        self._prepared, self._stop = prepared, stop
        self._run_dir, self._config = prepared.run_dir, prepared.config
        self._inputs, self._mesh = prepared.inputs, prepared.mesh
        connect(self._mesh)
        modules = run_modules(self._config, self._inputs.knowledge.vocabulary.size)
        self._shardings = param_shardings(self._mesh, modules.axes, modules.shapes)
        self.params = initial_params(self._config, modules, prepared.start_params, self._mesh)

    def claim(self) -> None:
        """Writes the config; deletes the end marker if steps or the last index are missing.

        The checks of `prepare` are repeated: another trainer may have held the lock since then.
        """
        if hosts.is_leader():
            warn_if_bits_differ(self._mesh.devices.flat[0].platform)
            check_steps_not_reduced(self._run_dir, self._config)
            if changed := other_settings(self._run_dir, self._config):
                log.warning("%s: %s", CONTINUES, changed)
            save_run_config(self._run_dir, self._config)
            save_corpora(self._run_dir, corpora_of(self._inputs))
            self._keep_vocabulary()
            self._announce_corpus_change()
            trained = commit.latest(self._run_dir.checkpoints("realm"))
            steps = self._config.stages.realm.steps
            if trained is None or trained < steps or self._is_lost():
                follow.clear_end(self._run_dir)
        everyone = hosts.all_gather("inputs", 0, inputs_of(self._config, self._inputs))
        require_same_inputs(everyone, self._run_dir)

    def _keep_vocabulary(self) -> None:
        """Copies the vocabulary into the run folder, once: later corpora must have the same."""
        vocabulary = self._run_dir.vocabulary
        if not vocabulary.exists():
            files.write_bytes(vocabulary, (self._inputs.knowledge.path / VOCABULARY).read_bytes())

    def _announce_corpus_change(self) -> None:
        """Logs what has changed, and releases what an ended trainer has leased of the old index."""
        change = self._prepared.corpus_change
        if change is not None:
            log.warning(
                "the knowledge corpus has changed; the index builder builds its index again; %s",
                change,
            )
            trainer_lease(self._run_dir).release()

    def beat(self, stage: str, step: int) -> None:
        """Writes a heartbeat."""
        if hosts.is_leader():
            heartbeat.beat(self._run_dir, JOB, stage=stage, step=step)

    def replace(self, params: Parameters) -> None:
        """Replaces the params of some modules by host arrays."""
        to = {name: self._shardings[name] for name in params}
        self.params |= shard_arrays(params, to)

    def warm_start(self) -> None:
        """Trains the reader on masked text, then the embedder by the inverse cloze task."""
        store, groups = self._inputs.knowledge, self._prepared.groups
        self._train(ReaderStage(self._config, store, self._inputs.text, groups))
        if self._config.stages.ict.from_reader:
            copied = jax.tree.map(jnp.copy, self.params["reader"]["bert"])
            self.params["embedder"]["bert"] = copied
        self._train(IctStage(self._config, store, groups))

    def pretrain(self) -> None:
        """REALM pre-training; publishes snapshots and searches the indexes built from them.

        Without steps, a snapshot of the initial params is published (`stages.realm.publish_start`).
        """
        config = self._config
        if not publishes(config):
            return
        finished = _newest_params(self._run_dir, "realm")
        if finished is not None and finished[0] >= config.stages.realm.steps:
            self.replace(finished[1])
            self.publish_lost_snapshot()
            return
        publisher = self._publisher()
        swaps = hosts.agreed("swaps", 0, lambda: read_swaps(self._run_dir))
        replay = [(first, index_step) for first, index_step in swaps]
        index = self._index_manager(replay, publisher.check)
        stage = RealmStage(
            config,
            self._inputs.knowledge,
            self._inputs.text,
            self._inputs.held_out,
            index,
            self._mesh,
            self._prepared.groups,
        )
        self._train(stage, publisher, _swaps_until(index))

    def publish_lost_snapshot(self) -> None:
        """Publishes the last snapshot again if it and its index are missing (`_is_lost`)."""
        step = self._config.stages.realm.steps
        if hosts.agreed("lost", step, self._is_lost):
            publisher = self._publisher()
            publisher.publish(step, {name: self.params[name] for name in MODULES["realm"]})
            publisher.wait()

    def _is_lost(self) -> bool:
        """Whether the last index and the snapshot from which it is built are both missing."""
        parents = (self._run_dir.snapshots, self._run_dir.published_index)
        last = step_name(self._config.stages.realm.steps)
        return not any(commit.is_published(parent / last) for parent in parents)

    def _publisher(self) -> Publisher:
        config = self._config
        fields = {"config_hash": config_lib.model_hash(config), "stage": "realm"}
        as_json = config_lib.to_json(config, self._run_dir.workdir)
        probes = probe_queries(self._inputs.held_out, self._inputs.text, config.builder.probes)
        return Publisher(
            self._run_dir,
            config.refresh.keep,
            as_json,
            fields,
            self._mesh,
            EmbedderRows(config, self._inputs.knowledge.vocabulary).queries(probes),
            still_allowed(self._stop),
        )

    def finish(self) -> int:
        """Fine-tunes if there are questions, exports and marks the run as ended.

        Returns the number of the export; 0 if the run has none.
        """
        steps = self._config.stages.realm.steps
        if not publishes(self._config):
            if hosts.is_leader():
                follow.mark_end(self._run_dir, step=0)
            return 0
        index = self._final_index(steps)
        networks, tuned = {name: self.params[name] for name in ("embedder", "reader")}, 0
        exported = gather_to_host(self._mesh, networks)
        if self._inputs.questions and self._config.stages.qa.steps:
            exported |= fine_tune(
                self._run_dir,
                self._config,
                self._inputs,
                self._mesh,
                self.params | by_module(self._prepared.question_networks),
                index,
                self._stop,
            )
            tuned = self._config.stages.qa.steps
        elif not was_fine_tuned(self._run_dir):
            exported |= self._prepared.question_networks

        def publish() -> int:
            as_json = config_lib.to_json(self._config, self._run_dir.workdir)
            allowed = still_allowed(self._stop)
            number = publish_export(
                self._run_dir, steps + tuned, index.step, exported, as_json, allowed
            )
            allowed()
            follow.mark_end(self._run_dir, step=steps)
            return number

        number = hosts.agreed("export", index.step, publish)
        trainer_lease(self._run_dir).release()  # no step is left that searches the index
        return number

    def _final_index(self, step: int) -> PublishedIndex:
        manager = self._index_manager([])
        try:
            return manager.wait_for(step)
        except WaitInterrupted as error:
            raise Stopped("realm", step) from error
        finally:
            manager.close()

    def _train(
        self,
        stage: Stage,
        publisher: Publisher | NoPublisher | None = None,
        fields: Callable[[int], dict[str, Any]] = lambda step: {},
    ) -> None:
        if stage.settings.steps == 0 and publisher is None:
            return
        start_time = time.monotonic()
        self.params |= train(
            self._run_dir,
            self._config,
            stage,
            {name: self.params.pop(name) for name in MODULES[stage.name]},
            self._mesh,
            self._stop,
            NoPublisher() if publisher is None else publisher,
            fields,
        )
        log.info("stage %s: %.0f s", stage.name, time.monotonic() - start_time)

    def _index_manager(
        self, replay: SwapLog, check: Callable[[], None] = lambda: None
    ) -> IndexManager:
        return IndexManager(
            self._run_dir,
            self._config,
            Knowledge(self._inputs.knowledge, self._config).accepts,
            replay,
            required=lambda: required_indexes(self._run_dir, self._config.refresh),
            stop=self._stop,
            mesh=self._mesh,
            check=check,
        )


def _swaps_until(index: IndexManager) -> Callable[[int], dict[str, Any]]:
    """Manifest fields of a checkpoint: the swaps up to its step, without prefetched steps."""
    return lambda step: {"swaps": [list(swap) for swap in index.swaps if swap[0] <= step]}
