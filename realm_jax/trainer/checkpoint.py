"""Checkpoints of the training state, from which a stage resumes; only the trainer reads them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from etils import epath
from jax.sharding import Mesh

from realm_jax.artifacts.params import (
    load_parameters,
    require_sharded_writes,
    save_parameters,
    save_sharded,
)
from realm_jax.errors import MismatchError
from realm_jax.models.modules import Parameters
from realm_jax.parallel import hosts
from realm_jax.parallel.sharding import gather_to_host, shard_arrays
from realm_jax.storage import commit, files, integrity, leases
from realm_jax.storage.layout import CHECKPOINTS, CONFIG, PARAMETERS, RunDir, step_name
from realm_jax.trainer.state import TrainState

KIND = "checkpoint"
_OPTIMIZER = "optimizer"


class Checkpoints:
    """The checkpoints of one stage. All processes call `save` and `restore` together."""

    def __init__(
        self,
        run: RunDir,
        stage: str,
        keep: int,
        config_json: str,
        mesh: Mesh,
        still_allowed: Callable[[], None] = lambda: None,
    ):
        self._run, self._stage, self._keep, self._config = run, stage, keep, config_json
        self._mesh, self._still_allowed = mesh, still_allowed  # the latter: see `commit.publish`
        self._parent = run.checkpoints(stage)
        require_sharded_writes(self._parent)

    def save(self, state: TrainState, fields: dict[str, Any]) -> None:
        """Writes the state of a step; does nothing if that step is already saved.

        On a shared file system every process writes the shards of its devices. On an object store
        process 0 writes everything. Process 0 writes the manifest.

        Args:
          state: the training state, on the devices.
          fields: JSON fields for the manifest.
        """
        step = int(state.step)
        folder = self._parent / step_name(step)
        new = hosts.agreed(self._topic("new"), step, lambda: not commit.is_published(folder))
        if hosts.is_leader():
            manifest = {"kind": KIND, "stage": self._stage, "networks": sorted(state.parameters)}
            write = lambda folder: self._write(folder, state)  # noqa: E731
            fields = {**manifest, **fields}
            commit.publish(self._parent, step, write, fields, self._still_allowed)
            leases.retain(self._run, f"{CHECKPOINTS}/{self._stage}", self._keep)
        elif new:
            self._write(folder, state)
        hosts.all_gather(self._topic("saved"), step)

    def _write(self, folder: epath.Path, state: TrainState) -> None:
        moments = jax.tree.leaves(state.optimizer)
        numbered = {f"{number:05d}": leaf for number, leaf in enumerate(moments)}
        hosts.all_gather(self._topic("folder"), int(state.step))
        for name, tree in ((PARAMETERS, state.parameters), (_OPTIMIZER, numbered)):
            if files.is_local(self._parent):
                save_sharded(folder / name, tree)
            else:
                whole = gather_to_host(self._mesh, tree)
                if hosts.is_leader():
                    save_parameters(folder / name, whole)
        if hosts.is_leader():
            files.write_bytes(folder / CONFIG, self._config.encode())

    def _topic(self, what: str) -> str:
        return f"checkpoint/{self._stage}/{what}"

    def newest(self) -> int | None:
        """The step of the newest checkpoint, which process 0 finds for all; None if none."""
        return hosts.agreed(self._topic("newest"), 0, lambda: commit.latest(self._parent))

    def restore(
        self, step: int, like: TrainState, reference: Parameters | None = None
    ) -> tuple[TrainState, dict[str, Any]]:
        """Reads a checkpoint; each device receives its shards.

        Args:
          step: of the checkpoint; see `newest`.
          like: `abstract_state` of the stage.
          reference: `TrainState.reference`, which a checkpoint does not contain; None: empty.

        Returns:
          The state on the devices, and the manifest.

        Raises:
          DamageError: a file does not match its checksum.
          MismatchError: a param has another shape than in `like`.
        """
        folder = self._parent / step_name(step)
        with integrity.verified(folder, KIND) as (copy, manifest):
            params = _checked(load_parameters(copy / PARAMETERS), like.parameters, folder)
            numbered = load_parameters(copy / _OPTIMIZER)
        structure = jax.tree.structure(like.optimizer)
        moments = jax.tree.unflatten(structure, [numbered[name] for name in sorted(numbered)])
        moments = _checked(moments, like.optimizer, folder)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, like)
        saved = (np.asarray(step, like.step.dtype), params, moments, reference or {})
        return TrainState(*shard_arrays(saved, tuple(shardings))), manifest


def final_params(run: RunDir, stage: str) -> tuple[int, Parameters] | None:
    """Step and params of a stage's newest checkpoint, on the host; None if it has none."""
    step = commit.latest(run.checkpoints(stage))
    return None if step is None else (step, params_at(run, stage, step))


def params_at(run: RunDir, stage: str, step: int) -> Parameters:
    """Params of the checkpoint of a stage at a step, on the host."""
    folder = run.checkpoints(stage) / step_name(step)
    with integrity.verified(folder, KIND) as (copy, _):
        return load_parameters(copy / PARAMETERS)


def _checked(saved: Any, like: Any, folder: epath.Path) -> Any:
    """`saved`; raises a MismatchError if its shapes are not those of `like`."""
    expected, found = (_shapes(tree) for tree in (like, saved))
    if expected != found:
        wrong = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        raise MismatchError(
            "the checkpoint has other shapes than the model",
            where=folder,
            expected=f"{wrong} {expected.get(wrong)}",
            found=f"{wrong} {found.get(wrong)}",
            fix="train in a new workdir, or use the config that this run started with",
        )
    return saved


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {
        jax.tree_util.keystr(path): tuple(leaf.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
