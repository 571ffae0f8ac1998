"""Traces a range of training steps with the JAX profiler (`config.report.profile_steps`)."""

import contextlib
import itertools
import logging
import os
from typing import Any

import jax

from realm_jax.storage.layout import RunDir
from realm_jax.storage.staging import local_to_write
from realm_jax.trainer.state import TrainState
from realm_jax.trainer.step import Metrics, StepFunction

log = logging.getLogger(__name__)


def step_range(profile_steps: str) -> range:
    """The steps of "FIRST:LAST", LAST included; an empty range for ""."""
    if not profile_steps:
        return range(0)
    first, _, last = profile_steps.partition(":")
    return range(int(first), int(last) + 1)


class StepProfiler:
    """Writes one trace of a stage, which TensorBoard and Perfetto open.

    The files are in `logs/tensorboard/STAGE/plugins/profile/TIME`: `*.xplane.pb` for TensorBoard,
    `perfetto_trace.json.gz` for https://ui.perfetto.dev.

    Args:
      run: the run folder.
      stage: name of the stage.
      steps: consecutive steps to trace.
    """

    def __init__(self, run: RunDir, stage: str, steps: range):
        self._folder = run.logs / "tensorboard" / stage
        self._stage, self._steps = stage, steps
        self._trace = contextlib.ExitStack()
        self._active = False

    def traced(self, step_function: StepFunction, first: int) -> StepFunction:
        """`step_function`, called for consecutive steps from `first` on, with the trace."""
        steps = itertools.count(first)

        def call(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
            step = next(steps)
            if step not in self._steps:
                return step_function(state, batch)
            self._start()
            with jax.profiler.StepTraceAnnotation(self._stage, step_num=step):
                result = step_function(state, batch)
            if step == self._steps[-1]:
                jax.block_until_ready(result)
                self.close()
            return result

        return call if self._steps else step_function

    def _start(self) -> None:
        if self._active:
            return
        folder = self._trace.enter_context(local_to_write(self._folder))
        self._trace.enter_context(jax.profiler.trace(os.fspath(folder), create_perfetto_trace=True))
        self._active = True

    def close(self) -> None:
        """Ends a trace that has begun; a stage may end before the last step of the range."""
        if self._active:
            self._active = False
            self._trace.close()
            log.info("profiler trace written to %s", self._folder)
