"""Evaluates a stage with the groups, shardings and micro-batches of training, without dropout."""

from collections.abc import Iterable
from typing import Any

import jax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int64
from ml_collections import ConfigDict

from realm_jax.models.modules import Parameters
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import local_rows, replicated, shard_batch
from realm_jax.trainer.micro_batches import mean_over_parts
from realm_jax.trainer.stage import Stage

_OF_PACKING = ("real_pieces", "padding_share")  # metrics of the batch shapes, not of the model


class Evaluation:
    """Mean metrics of a stage over batches of its training size.

    All processes call it together; each builds the rows of its own devices.

    Args:
      config: of the run.
      stage: provides loss and weight.
      mesh: the devices.

    Attributes:
      rows: rows of a batch that this process builds, ascending.
      program: (params, batch) -> metrics and the weight of the batch.
    """

    def __init__(self, config: ConfigDict, stage: Stage, mesh: Mesh):
        self._mesh, self._size = mesh, stage.settings.batch
        self.rows: Int64[Any, R] = local_rows(mesh, self._size)
        self.program = make_evaluation(stage, mesh, config.optimizer.accumulate_steps)

    def mean(self, params: Parameters, batches: Iterable[Any]) -> dict[str, float]:
        """Metrics of all batches, weighted with `Stage.weight`; {} without batches.

        Args:
          params: on the devices.
          batches: host batches; the first axis holds `rows`, or groups of them.
        """
        sums: dict[str, float] = {}
        total = 0.0
        for batch in batches:
            sharded = shard_batch(self._mesh, batch, self.rows, self._size)
            metrics, weight = jax.device_get(self.program(params, sharded))
            total += float(weight)
            for name in metrics.keys() - set(_OF_PACKING):
                sums[name] = sums.get(name, 0.0) + float(weight) * float(metrics[name])
        return {name: value / total for name, value in sorted(sums.items())}


def make_evaluation(stage: Stage, mesh: Mesh, parts: int) -> Program:
    """Creates the program (params, batch) -> (metrics, weight).

    Args:
      stage: see `Evaluation`.
      mesh: see `Evaluation`.
      parts: number of micro-batches.
    """

    def evaluate(
        params: Parameters, batch: Any
    ) -> tuple[dict[str, Float[Array, ""]], Float[Array, ""]]:
        def of_part(part: Any, _: Array | None) -> tuple[Any]:
            with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
                return (stage.loss(stage.modules.bind(params), part, None)[1],)

        [metrics] = mean_over_parts(of_part, batch, stage.weight, parts, mesh)
        return metrics, stage.weight(batch)

    return Program(f"{stage.name}/evaluate", evaluate, out_shardings=replicated(mesh))
