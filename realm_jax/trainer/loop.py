"""The training loop of all stages: reader warm-up, ICT, REALM, open QA and the tagger."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import Stopped
from realm_jax.models.modules import Parameters
from realm_jax.monitoring.terminal import terminal_writer
from realm_jax.monitoring.writers import Writer, Writers, metric_writers
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import local_rows, shard_batch
from realm_jax.storage import heartbeat
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import RunDir
from realm_jax.storage.locks import still_allowed
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.evaluation import Evaluation
from realm_jax.trainer.nonfinite import NonFiniteDetector
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.prefetch import InlineBatches, Prefetcher
from realm_jax.trainer.profiler import StepProfiler, step_range
from realm_jax.trainer.publisher import NoPublisher, Publisher
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import TrainState, abstract_state, make_state
from realm_jax.trainer.step import StepFunction, make_step
from realm_jax.trainer.step_metrics import StepMetrics
from realm_jax.trainer.throughput import Throughput, peak_flops


def train(
    run: RunDir,
    config: ConfigDict,
    stage: Stage,
    start_params: Parameters,
    mesh: Mesh,
    stop: threading.Event,
    publisher: Publisher | NoPublisher,
    fields: Callable[[int], dict[str, Any]] = lambda step: {},
) -> Parameters:
    """Trains a stage to its last step, from its newest checkpoint or from `start_params`.

    The order within a step matters. Whatever reads the params of step n (evaluation, checkpoint,
    snapshot) runs before batch n is taken, so a checkpoint never includes a later step. The metrics
    of step n - 1 are read after step n is dispatched, and before anything is saved.

    Args:
      run: the run folder.
      config: the run's config.
      stage: provides modules, batches, loss and evaluation.
      start_params: params of the stage's modules; emptied, so that their memory is free for the
        state.
      mesh: devices that hold params and batches.
      stop: the stop signal; the loop saves a checkpoint and raises `Stopped`.
      publisher: publishes a snapshot every `config.refresh.every` steps.
      fields: from a step to JSON fields for the manifest of its checkpoint.

    Returns:
      The params after the last step, on the devices.
    """
    steps = stage.settings.steps
    checkpoints, state, step_function, evaluation, spent = _start(
        run, config, stage, start_params, mesh, still_allowed(stop)
    )
    first = int(state.step)
    if first >= steps and checkpoints.newest() is not None:
        return state.parameters
    profiler = _profiler(run, config, stage)
    step_function = profiler.traced(step_function, first)
    began = time.monotonic() - spent
    step_metrics = _step_metrics(run, config, stage, mesh, first)
    between = _BetweenSteps(
        run, config, stage, publisher, checkpoints, evaluation, step_metrics, fields, first, began
    )
    batches = _batches(stage, mesh, first, steps)
    try:
        for step in range(first, steps):
            if between.ends(step, state):
                break
            batch = batches.get(step, stop, state.parameters)
            if not _all_go_on(stage, step, batch is not None and not stop.is_set()):
                between.save(state)
                raise Stopped(stage.name, step)
            if step == first:
                step_metrics.count_flops(
                    lambda p, b: stage.loss(stage.modules.bind(p), b, None), state.parameters, batch
                )
            with jax.transfer_guard("disallow"):
                state, metrics = step_function(state, batch)
            failpoint("step.dispatched")
            between.nonfinite.add(step, batch, metrics)
            step_metrics.add(step, metrics)
        between.flush()
        state, final = _concluded(stage, steps, state, evaluation)
        publisher.publish(steps, state.parameters)
        between.save(state, concluded=True)
        step_metrics.write(steps, **final, seconds=time.monotonic() - began)
    finally:
        profiler.close()
        step_metrics.close()
        stage.close()
        batches.close()
    return state.parameters


@dataclass
class _BetweenSteps:
    """What reads the params between two steps: snapshots, evaluations and checkpoints.

    Attributes:
      first: the first step of this process.
      began: `time.monotonic()` at which the stage would have begun without interruptions.
      nonfinite: checks every dispatched step before anything is saved.
    """

    run: RunDir
    config: ConfigDict
    stage: Stage
    publisher: Publisher | NoPublisher
    checkpoints: Checkpoints
    evaluation: Evaluation
    step_metrics: StepMetrics
    fields: Callable[[int], dict[str, Any]]
    first: int
    began: float

    def __post_init__(self) -> None:
        self.nonfinite = NonFiniteDetector(self.run, self.stage.name)

    def ends(self, step: int, state: TrainState) -> bool:
        """Publishes, evaluates and saves what is due before batch `step`; whether training ends.

        The checkpoint comes first, so that a failed evaluation does not repeat steps. If the stage
        may end, the evaluation comes first: a run resumed from the checkpoint would train on.
        """
        config, stage, is_first = self.config, self.stage, step == self.first
        if _due(step, config.refresh.every):
            self.flush()
            self.publisher.publish(step, state.parameters)
            self._beat(step)
        evaluates = not is_first and _due(step, stage.settings.evaluate_every)
        if evaluates and stage.may_end and self._evaluate_and_end(step, state):
            return True
        if not is_first and _due(step, config.checkpoint.every):
            self.save(state)
        return evaluates and not stage.may_end and self._evaluate_and_end(step, state)

    def flush(self) -> None:
        """Waits for all dispatched steps, checks them and writes their metrics."""
        self.nonfinite.flush()
        self.step_metrics.flush()

    def save(self, state: TrainState, *, concluded: bool = False) -> None:
        """Saves a checkpoint; `concluded`: it is that of the end of the stage.

        Its field `seconds` is the time that the log does not have yet; a resumed run adds it.
        """
        self.flush()
        self.publisher.wait()  # a resumed run does not publish earlier snapshots
        seconds = 0.0 if concluded else time.monotonic() - self.began
        own = {"concluded": concluded, "seconds": seconds}
        fields = {**self.fields(int(state.step)), **own}
        self.checkpoints.save(state, fields)
        self._beat(int(state.step))  # the log may be up to `report.every` steps behind

    def _beat(self, step: int) -> None:
        if hosts.is_leader():
            heartbeat.beat(self.run, "trainer", stage=self.stage.name, step=step)

    def _evaluate_and_end(self, step: int, state: TrainState) -> bool:
        self.flush()
        measured = self.stage.evaluate(step, state.parameters, self.evaluation)
        self.step_metrics.write(step, **measured)
        return self.stage.ends(measured)


def _all_go_on(stage: Stage, step: int, ready: bool) -> bool:
    """Whether every process has its batch and none was stopped."""
    return all(hosts.all_gather(f"{stage.name}/step", step, ready))


def _concluded(
    stage: Stage, steps: int, state: TrainState, evaluation: Evaluation
) -> tuple[TrainState, dict[str, float]]:
    """The state to keep, at step `steps`, and its metrics on held-out data.

    If the stage has ended earlier, the metric `trained_steps` says where.
    """
    trained, step = int(state.step), state.step
    metrics = stage.evaluate(trained, state.parameters, evaluation)
    kept, metrics = stage.conclude(state, metrics)
    if trained < steps:
        step += steps - trained
        metrics |= {"trained_steps": float(trained)}
    return state._replace(step=step, parameters=kept), metrics


def _start(
    run: RunDir,
    config: ConfigDict,
    stage: Stage,
    start_params: Parameters,
    mesh: Mesh,
    allowed: Callable[[], None],
) -> tuple[Checkpoints, TrainState, StepFunction, Evaluation, float]:
    """The stage's checkpoints, newest or first state, step, evaluation, and seconds before."""
    optimizer = make_optimizer(config.optimizer, stage.settings)
    as_json = config_lib.to_json(config, run.workdir)
    checkpoints = Checkpoints(run, stage.name, config.checkpoint.keep, as_json, mesh, allowed)
    newest, spent = checkpoints.newest(), 0.0
    if newest is None:
        state = make_state(stage.modules, optimizer, mesh, start_params, stage.reference)
        start_params.clear()
    else:
        like = abstract_state(stage.modules, optimizer, mesh, stage.reference)
        reference = {name: start_params[name] for name in stage.reference}
        start_params.clear()  # before the checkpoint takes memory
        state, manifest = checkpoints.restore(newest, like, reference)
        spent = manifest.get("seconds", 0.0)  # earlier versions did not record it
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    micro_batches = config.optimizer.accumulate_steps
    step_function = make_step(stage, optimizer, mesh, shardings, config.seed, micro_batches)
    return checkpoints, state, step_function, Evaluation(config, stage, mesh), spent


def _step_metrics(
    run: RunDir, config: ConfigDict, stage: Stage, mesh: Mesh, first: int
) -> StepMetrics:
    writers: list[Writer] = []
    if hosts.is_leader():
        view = terminal_writer(run, config, stage.name, first)
        writers = [*metric_writers(run, config, stage.name), view]
    return StepMetrics(
        stage.settings.steps,
        config.report.every,
        stage.settings.batch,
        Writers(stage.name, writers),
        Throughput(peak_flops(mesh, config.report)),
        stage.step_fields,
    )


def _profiler(run: RunDir, config: ConfigDict, stage: Stage) -> StepProfiler:
    """Process 0 traces its devices; the others trace none."""
    steps = step_range(config.report.profile_steps) if hosts.is_leader() else range(0)
    return StepProfiler(run, stage.name, steps)


def _batches(stage: Stage, mesh: Mesh, first: int, last: int) -> Prefetcher | InlineBatches:
    """Each process builds only the rows of its own devices."""
    size = stage.settings.batch
    rows = local_rows(mesh, size)

    def build(step: int, params: Parameters | None = None) -> Any:
        return shard_batch(mesh, stage.batch(step, rows, params), rows, size)

    def may_end(step: int) -> bool:
        return stage.may_end and _due(step, stage.settings.evaluate_every)

    return Prefetcher(build, first, last, may_end) if stage.prefetchable else InlineBatches(build)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
