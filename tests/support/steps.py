"""Publishes small checkpoints, snapshots, indexes and exports whose content depends on their step.

A folder that mixes files of two steps therefore fails the comparison with either step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float32

from realm_jax.artifacts.export import publish_export, read_export
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.defaults import default
from realm_jax.parallel.sharding import make_mesh
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import LocalSearcher
from realm_jax.retrieval.segmented_searcher import SegmentedSearcher
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.trainer.checkpoint import Checkpoints
from realm_jax.trainer.state import TrainState

OLD, NEW = 10, 20
DIMS = 4
CORPUS_HASH = "c0ffee"


class Kind(NamedTuple):
    """One kind of artifact.

    Attributes:
      publish: writes the artifact of a step.
      assert_intact: reads the artifact of a step and compares it with what `publish` wrote.
      folder: the parent folder, relative to the run folder.
    """

    publish: Callable[[RunDir, int], None]
    assert_intact: Callable[[RunDir, int], None]
    folder: str


def _params(step: int) -> dict[str, Any]:
    return {"a": {"w": np.full((3, 3), step, np.float32)}, "b": np.full(5, step, np.int32)}


def _vectors(step: int) -> Float32[np.ndarray, "N E"]:
    return np.random.default_rng(step).normal(size=(12, DIMS)).astype(np.float32)


def _state(step: int) -> TrainState:
    moments = [np.full(4, step, np.float32)]
    state = TrainState(np.array(step, np.int32), _params(step), moments, {})  # type: ignore[arg-type]
    return jax.tree.map(jax.numpy.asarray, state)


def _assert_equal(found: Any, expected: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def _publish_snapshot(run: RunDir, step: int) -> None:
    publish_snapshot(run, step, _params(step), f'{{"step": {step}}}', {"config_hash": "c"})


def _assert_snapshot(run: RunDir, step: int) -> None:
    found = read_snapshot(run.snapshots / step_name(step))
    _assert_equal(found.params, _params(step))
    assert found.config_json == f'{{"step": {step}}}'


def _publish_index(run: RunDir, step: int) -> None:
    _publish(run, step, ExactSearcher(_vectors(step)))


def _publish_segmented_index(run: RunDir, step: int) -> None:
    _publish(run, step, SegmentedSearcher([*map(ExactSearcher, np.split(_vectors(step), 3))]))


def _publish(run: RunDir, step: int, searcher: LocalSearcher) -> None:
    vectors = _vectors(step)
    fields = {"corpus_hash": CORPUS_HASH, "snapshot_step": step}
    rows = np.arange(len(vectors))
    publish_index(run, step, searcher, rows, vectors, _params(step), fields, str(step))


def _assert_index(run: RunDir, step: int) -> None:
    found, vectors = open_index(run.published_index / step_name(step)), _vectors(step)
    _assert_equal(found.query_params, _params(step))
    _assert_equal(found.vectors, vectors.astype(np.float16))
    hits, _ = found.searcher.search(vectors[:3], 1)
    assert hits[:, 0].tolist() == (vectors[:3] @ vectors.T).argmax(-1).tolist()


def _publish_export(run: RunDir, step: int) -> None:
    publish_export(run, step, OLD, {"embedder": _params(step)}, str(step))


def _assert_export(run: RunDir, step: int) -> None:
    found = read_export(run)
    assert found.step == step
    _assert_equal(found.networks["embedder"], _params(step))


def _checkpoints(run: RunDir, step: int) -> Checkpoints:
    one_device = make_mesh(default().mesh, jax.devices()[:1])
    return Checkpoints(run, "realm", 9, f'{{"step": {step}}}', one_device)


def _publish_checkpoint(run: RunDir, step: int) -> None:
    _checkpoints(run, step).save(_state(step), {})


def _assert_checkpoint(run: RunDir, step: int) -> None:
    checkpoints = _checkpoints(run, step)
    newest = checkpoints.newest()
    assert newest == step
    state, manifest = checkpoints.restore(newest, _state(0))
    assert manifest["step"] == step
    _assert_equal(state, _state(step))


KINDS = {
    "checkpoint": Kind(_publish_checkpoint, _assert_checkpoint, "checkpoints/realm"),
    "snapshot": Kind(_publish_snapshot, _assert_snapshot, "snapshots"),
    "index": Kind(_publish_index, _assert_index, "published_index"),
    "segmented index": Kind(_publish_segmented_index, _assert_index, "published_index"),
    "export": Kind(_publish_export, _assert_export, "export"),
}
