"""The interface of a training stage: modules, batches, loss and evaluation."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int64, Key
from ml_collections import ConfigDict

from realm_jax.data.packing import Packed, Widths, bucket_for, lengths_of, pack
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel import hosts
from realm_jax.trainer.state import TrainState

BatchRows = np.ndarray | None  # row numbers [R] in a batch; None: all rows
Loss = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]  # loss and metrics


@runtime_checkable
class Evaluator(Protocol):
    """Runs the evaluation program of a stage (`trainer.evaluation`).

    Attributes:
      rows: rows of a batch that this process builds, ascending.
    """

    rows: Int64[np.ndarray, "R"]

    def mean(self, params: Parameters, batches: Iterable[Any]) -> dict[str, float]:
        """Mean metrics over host batches of the training size; {} without batches."""


@runtime_checkable
class Stage(Protocol):
    """A stage of training, as the loop uses it.

    Attributes:
      name: of the stage, in configs, logs and checkpoints.
      settings: `config.stages.NAME`.
      modules: the modules that the stage trains.
      prefetchable: whether a thread can build batches ahead of the steps, because that takes
        neither params nor devices.
      may_end: whether an evaluation can end the stage (`ends`).
      reference: modules whose params before the stage the loss or `conclude` needs.
    """

    name: str
    settings: ConfigDict
    modules: Modules
    prefetchable: bool
    may_end: bool
    reference: tuple[str, ...]

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> Any:
        """Builds the batch of a step from the seed and the step number.

        Args:
          step: the training step.
          batch_rows: rows of the batch to build; None builds all.
          params: params of the step; the loop passes them unless the stage is prefetchable.

        Returns:
          A (named) tuple of host arrays; the first axis is B, or G for packed rows
          (`data.packing`).
        """

    def loss(self, networks: SimpleNamespace, batch: Any, key: Key[Array, ""] | None) -> Loss:
        """The mean loss of a batch and metrics; traced by JAX.

        Args:
          networks: the modules with their params, as attributes. In training, attribute
            `reference` has those of `Stage.reference` with their params before the stage.
          batch: a batch, or a micro-batch of it.
          key: random key of dropout; None turns dropout off.
        """

    def weight(self, batch: Any) -> Float[Array, ""]:
        """The number of terms in the mean loss, which weights a micro-batch; traced by JAX."""

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """Metrics after `step` steps on examples that are not trained on; {} if there are none.

        All processes call it together.

        Args:
          step: number of finished steps.
          params: on the devices.
          evaluation: computes metrics of batches with the loss of this stage.
        """

    def ends(self, metrics: dict[str, float]) -> bool:
        """Whether the stage ends before its last step, given the metrics of `evaluate`."""

    def conclude(
        self, state: TrainState, metrics: dict[str, float]
    ) -> tuple[Parameters, dict[str, float]]:
        """Chooses the params to keep after the last step, or some from before the stage.

        Args:
          state: after the last step that was trained.
          metrics: of `evaluate` with its params.

        Returns:
          The params, and metrics to log.
        """

    def step_fields(self, step: int) -> dict[str, Any]:
        """Fields that the host adds to the log record of a step."""

    def close(self) -> None:
        """Ends a wait in `batch`, which may run in a thread; no step follows."""


class IndexFreeStage:
    """Base class of stages that search no index."""

    name: str
    may_end = False
    reference: tuple[str, ...] = ()

    def ends(self, metrics: dict[str, float]) -> bool:
        """They end after their last step."""
        return False

    def conclude(
        self, state: TrainState, metrics: dict[str, float]
    ) -> tuple[Parameters, dict[str, float]]:
        """Keeps the params of the last step."""
        return state.parameters, metrics

    def step_fields(self, step: int) -> dict[str, Any]:
        """No fields."""
        return {}

    def close(self) -> None:
        """Does nothing: `batch` waits for nothing."""

    def _packed(self, step: int, parts: list[Rows], buckets: tuple[Widths, ...]) -> Packed:
        """Packs rows [G, n_i, L_i] into the first bucket that fits those of every process."""
        bucket = bucket_for(lengths_of(parts), buckets)
        return pack(parts, buckets[max(hosts.all_gather(f"{self.name}/packing", step, bucket))])
