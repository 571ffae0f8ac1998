"""The one training loop: ICT, reader, REALM and open QA differ by the stage they bring."""

import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import Stopped
from realm_jax.models.modules import Parameters
from realm_jax.monitoring.terminal import person_writer
from realm_jax.monitoring.writers import Writer, Writers, kept_writers
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import local_rows, shard_batch
from realm_jax.storage import heartbeat
from realm_jax.storage.failpoints import reach
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.nonfinite import NonFiniteDetector
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.prefetch import InlineBatches, Prefetcher
from realm_jax.trainer.publisher import NoPublisher, Publisher
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import TrainState, make_state
from realm_jax.trainer.step import make_step
from realm_jax.trainer.step_metrics import Report
from realm_jax.trainer.throughput import Speed, peak_flops


def train(
    run: RunDir,
    config: ConfigDict,
    stage: Stage,
    given: Parameters,
    mesh: Mesh,
    stop: threading.Event,
    publisher: Publisher | NoPublisher,
    fields: Callable[[int], dict[str, Any]] = lambda step: {},
) -> Parameters:
    """Runs a stage from its newest checkpoint, or from `given`, to its last step.

    The order within a step is a contract. What looks at the parameters of step n (evaluation,
    checkpoint, snapshot) comes before batch n is taken, so nothing saved is ever one ahead; the
    metrics of step n - 1 are read after step n is dispatched, and before anything is saved.

    Args:
      run: the run folder.
      config: of the run.
      stage: networks, batches, loss, evaluation.
      given: parameters to start from, for some of the stage's networks.
      mesh: where arrays lie.
      stop: when set, the loop saves and raises `Stopped`.
      publisher: of snapshots, on the cadence of `config.refresh.every`.
      fields: JSON fields for the manifest of a checkpoint, by step.

    Returns:
      The parameters after the last step, on the devices.
    """
    steps = stage.settings.steps
    optimizer = make_optimizer(config.optimizer, stage.settings)
    checkpoints, state = _resumed(run, config, stage, given, mesh, optimizer)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    first, parts = int(state.step), config.optimizer.accumulate_steps
    step_function = make_step(stage, optimizer, mesh, places, config.seed, parts)
    if first >= steps:
        return state.parameters
    began = time.monotonic()
    report = _report(run, config, stage, mesh, first)
    suspects = NonFiniteDetector(run, stage.name)

    def settle() -> None:
        suspects.settle()
        report.settle()

    def save(state: TrainState) -> None:
        settle()
        publisher.wait()  # what goes on from a checkpoint does not publish what came before it
        checkpoints.save(state, fields(int(state.step)))

    feed = _feed(stage, mesh, first, steps)
    try:
        for step in range(first, steps):
            if _due(step, config.refresh.every):
                settle()
                publisher.publish(step, state.parameters)
                if hosts.is_leader():
                    heartbeat.beat(run, "trainer", stage=stage.name, step=step)
            if step > first and _due(step, stage.settings.evaluate_every):
                settle()
                report.event(step, **stage.evaluate(state.parameters))
            if step > first and _due(step, config.checkpoint.every):
                save(state)
            stopping = any(hosts.all_gather(f"{stage.name}/stop", step, stop.is_set()))
            batch = None if stopping else feed.take(step, stop, state.parameters)
            if not all(hosts.all_gather(f"{stage.name}/batch", step, batch is not None)):
                save(state)
                raise Stopped(stage.name, step)
            if step == first:
                report.count_products(
                    lambda p, b: stage.loss(stage.modules.bind(p), b, None), state.parameters, batch
                )
            with jax.transfer_guard("disallow"):
                state, metrics = step_function(state, batch)
            reach("step.dispatched")
            suspects.note(step, batch, metrics, wait=_due(step, config.report.every))
            report.step(step, metrics)
        settle()
        publisher.publish(steps, state.parameters)
        save(state)
        report.event(steps, **stage.evaluate(state.parameters), seconds=time.monotonic() - began)
    finally:
        report.close()
        feed.close()
    return state.parameters


def _resumed(
    run: RunDir,
    config: ConfigDict,
    stage: Stage,
    given: Parameters,
    mesh: Mesh,
    optimizer: optax.GradientTransformation,
) -> tuple[Checkpoints, TrainState]:
    as_json = config_lib.to_json(config)
    checkpoints = Checkpoints(run, stage.name, config.checkpoint.keep, as_json, mesh)
    state = make_state(stage.modules, optimizer, mesh, config.seed, given)
    restored = checkpoints.restore(state)
    return checkpoints, state if restored is None else restored[0]


def _report(run: RunDir, config: ConfigDict, stage: Stage, mesh: Mesh, first: int) -> Report:
    writers: list[Writer] = []
    if jax.process_index() == 0:
        view = person_writer(run, config, stage.name, first)
        writers = [*kept_writers(run, config, stage.name), view]
    return Report(
        stage.name,
        stage.settings.steps,
        config.report.every,
        stage.settings.batch,
        Writers(stage.name, writers),
        Speed(peak_flops(mesh, config.report)),
        stage.beside,
    )


def _feed(stage: Stage, mesh: Mesh, first: int, last: int) -> Prefetcher | InlineBatches:
    """Each process makes its own rows of every batch, and no other."""
    size = stage.settings.batch
    places = local_rows(mesh, size)

    def make(step: int, *parameters: Parameters) -> Any:
        return shard_batch(mesh, stage.batch(step, places, *parameters), places, size)

    return Prefetcher(make, first, last) if stage.ahead else InlineBatches(make)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
