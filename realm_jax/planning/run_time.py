"""Time of a run: its training stages, and the steps that wait for an index."""

import math
from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from realm_jax.errors import ConfigError
from realm_jax.planning.chips import Slice
from realm_jax.planning.flops import train_flops
from realm_jax.planning.limits import Assumptions
from realm_jax.planning.reference_reports import BERT_VOCABULARY

_CYCLES = 1000  # refreshes over which a mean is taken


@dataclass(frozen=True)
class Pacing:
    """How refreshes and steps keep pace.

    Attributes:
      step_time: mean time between two steps, in steps that do not wait; without the first index.
      staleness: mean staleness in steps.
    """

    step_time: float
    staleness: float


def pacing(refresh: float, config: ConfigDict) -> Pacing:
    """The pace of steps and refreshes; `refresh` is the time of a refresh in steps.

    Raises:
      ConfigError: `refresh.mode` is rolling: how a refresh chooses its segment depends on the run.
    """
    every, most = config.refresh.every, config.refresh.max_staleness
    if config.refresh.mode == "rolling":
        raise ConfigError(
            "a plan does not model rolling refreshes",
            where="config.refresh.mode",
            expected="async or sync",
            found="rolling",
            fix="--config.refresh.mode=async, whose refreshes take longer",
        )
    if config.refresh.mode == "sync":
        return Pacing(1 + refresh / every, (every - 1) / 2)
    if most:
        waiting = bounded(refresh, every, most)
        if waiting.step_time > 1 + 1e-9:
            return waiting
    return Pacing(1.0, staleness(refresh, every))


def staleness(refresh_steps: float, every: int) -> float:
    """Mean staleness in steps, if a refresh takes `refresh_steps` and snapshots come `every` steps.

    A fast builder waits for the next snapshot. A slow builder starts again at once, on a snapshot
    that is `every` / 2 steps old on average. An index is used until the next one is published.
    """
    if refresh_steps <= every:
        return refresh_steps + every / 2
    return every / 2 + 1.5 * refresh_steps


def bounded(refresh: float, every: int, most: int) -> Pacing:
    """The pace if a step waits rather than search an index that is more than `most` steps old.

    Simulates refreshes one after the other, each on the newest snapshot; a step `s` may search an
    index of step `s - most` or newer. `most` is at least `every - 1`.

    Args:
      refresh: time of a refresh in steps.
      every: steps between snapshots.
      most: `refresh.max_staleness`.
    """
    step, index, clock, ages = 0.0, 0.0, 0.0, 0.0
    for _ in range(_CYCLES):
        snapshot = max(step // every * every, index + every)
        began = max(step, snapshot)  # step at which the builder takes the snapshot
        ended = max(began, min(began + refresh, index + most + 1))
        clock += began - step + refresh
        ages += (ended - step) * ((step + ended) / 2 - index)
        step, index = ended, snapshot
    return Pacing(clock / step, ages / step)


def wait_hours(refresh: float, step: float, pace: Pacing, config: ConfigDict) -> float:
    """Hours in which the trainer waits for indexes.

    Args:
      refresh: seconds of a refresh.
      step: seconds of a step that does not wait.
      pace: of the run.
      config: of the run.
    """
    steps = config.stages.realm.steps
    if not steps:
        return 0.0
    if config.refresh.mode == "sync":  # the index of step 0 is one of them
        return math.ceil(steps / config.refresh.every) * refresh / 3600
    return (refresh + steps * (pace.step_time - 1) * step) / 3600


def stage_hours(
    trainer: Slice, config: ConfigDict, reports: dict[str, dict[str, Any]], assumed: Assumptions
) -> dict[str, float]:
    """Hours of each pre-training stage that has steps, without waits; evaluations are REALM's."""
    report, hours = reports["realm/train"], {}
    for stage in ("reader", "ict"):
        if config.stages[stage].steps:
            chip_hours = stage_chip_hours(config, stage, report, BERT_VOCABULARY, assumed)
            hours[stage] = chip_hours / trainer.chips
    steps, every = config.stages.realm.steps, config.stages.realm.evaluate_every
    if steps:
        one = evaluation_seconds(reports["realm/evaluate"], trainer.chips, config, assumed)
        evaluations = steps // every if every else 1
        seconds = steps * step_seconds(report, trainer.chips, assumed) + evaluations * one
        hours["realm"] = seconds / 3600
    return hours


def evaluation_seconds(
    report: dict[str, Any], chips: int, config: ConfigDict, assumed: Assumptions
) -> float:
    """Seconds of one evaluation of stage realm, from a report of its program."""
    batches = -(-config.evaluation.queries // config.stages.realm.batch)
    return batches * step_seconds(report, chips, assumed)


def step_seconds(report: dict[str, Any], chips: int, assumed: Assumptions) -> float:
    """Seconds of a training step on `chips` chips; the work is divided evenly among the chips."""
    chip_seconds = report["roofline_seconds"] * report["chips"]
    return chip_seconds / chips / assumed.share_of_roofline


def stage_chip_hours(
    config: ConfigDict,
    stage: str,
    report: dict[str, Any],
    vocabulary: int,
    assumed: Assumptions | None = None,
) -> float:
    """Chip-hours of a whole training stage, at the FLOPs per second of the compiled REALM step.

    Args:
      config: of the run.
      stage: `ict`, `realm` or `qa`.
      report: compile report of step `train` for these chips, with any config.
      vocabulary: V, size of the vocabulary.
      assumed: assumptions; None is the defaults.
    """
    assumed = assumed or Assumptions()
    speed = report["flops_per_chip"] / report["roofline_seconds"] * assumed.share_of_roofline
    steps = config.stages[stage].steps
    return steps * train_flops(config, stage, vocabulary) / speed / 3600
