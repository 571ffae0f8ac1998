"""The one training loop: ICT, reader, REALM and open QA differ by the stage they bring."""

import threading
import time
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.exchange import heartbeat
from realm_jax.exchange.layout import RunDir
from realm_jax.failpoints import reach
from realm_jax.models.modules import Parameters
from realm_jax.parallel.sharding import batch_sharding
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.feed import Feed
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.publisher import NoPublisher, Publisher
from realm_jax.trainer.report import Report
from realm_jax.trainer.speed import Speed, peak_flops
from realm_jax.trainer.stage import Stage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step
from realm_jax.trainer.suspects import Suspects
from realm_jax.watch.terminal import person_writer
from realm_jax.watch.writers import Writer, Writers, kept_writers


class Stopped(Exception):
    """The stop signal came; everything up to `step` is saved."""

    def __init__(self, stage: str, step: int):
        super().__init__(f"stopped in stage {stage} at step {step}; the same command goes on there")
        self.stage, self.step = stage, step


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
    checkpoints = Checkpoints(run, stage.name, config.checkpoint.keep, config_lib.to_json(config))
    state = make_state(stage.modules, optimizer, mesh, config.seed, given)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    restored = checkpoints.restore(state)
    state = state if restored is None else restored[0]
    first = int(state.step)
    step_function = make_step(stage, optimizer, mesh, places, config.seed)
    if first >= steps:
        return state.parameters
    began = time.monotonic()
    report = _report(run, config, stage, mesh, first)
    suspects = Suspects(run, stage.name)

    def settle() -> None:
        suspects.settle()
        report.settle()

    feed = Feed(stage.batch, batch_sharding(mesh), first, steps)
    try:
        for step in range(first, steps):
            if _due(step, config.refresh.every):
                settle()
                publisher.publish(step, state.parameters)
                heartbeat.beat(run, "trainer", stage=stage.name, step=step)
            if step > first and _due(step, stage.settings.evaluate_every):
                settle()
                report.event(step, **stage.evaluate(state.parameters))
            if step > first and _due(step, config.checkpoint.every):
                settle()
                checkpoints.save(state, fields(step))
            batch = None if stop.is_set() else feed.take(step, stop)
            if batch is None:
                settle()
                checkpoints.save(state, fields(step))
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
        publisher.wait()  # a stage whose last checkpoint exists is never asked to publish again
        checkpoints.save(state, fields(steps))
        report.event(steps, **stage.evaluate(state.parameters), seconds=time.monotonic() - began)
    finally:
        report.close()
        feed.close()
    return state.parameters


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


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
