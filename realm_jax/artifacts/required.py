"""Which published indexes a run still needs, from the manifests of its checkpoints and export.

The builder's retention spares them, so a trainer that was down for any time finds its index.
"""

from typing import Any

from ml_collections import ConfigDict

from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

REALM = "realm"  # the stage that searches published indexes


def checkpoint_manifests(run: RunDir, stage: str) -> list[dict[str, Any]]:
    """The manifests of all existing checkpoints of a stage, oldest first."""
    parent = run.checkpoints(stage)
    found = [commit.read_manifest(parent / step_name(step)) for step in commit.steps(parent)]
    return [manifest for manifest in found if manifest is not None]


def swap_log_of(manifest: dict[str, Any]) -> list[tuple[int, int]]:
    """The swaps in the manifest of a checkpoint: (first training step, index step), ascending."""
    return [(int(first), int(index)) for first, index in manifest.get("swaps", [])]


def read_swaps(run: RunDir) -> list[tuple[int, int]]:
    """All swaps of a run: those up to the newest checkpoint, then those logged after it."""
    kept = checkpoint_manifests(run, REALM)
    known = [swap for swap in swap_log_of(kept[-1]) if swap[0] <= kept[-1]["step"]] if kept else []
    last = known[-1][0] if known else -1
    later = [record for record in logged_swaps(run) if record["step"] > last]
    return known + [(record["step"], record["index_step"]) for record in later]


def logged_swaps(run: RunDir) -> list[dict[str, Any]]:
    """The records of `logs/swaps.jsonl`, steps ascending.

    A run whose index was deleted does not repeat its later swaps, so a record replaces those of its
    step and of later steps.
    """
    found: list[dict[str, Any]] = []
    for record in read_log(run.swaps, "step", "index_step"):
        found = [earlier for earlier in found if earlier["step"] < record["step"]]
        found.append(record)
    return found


def snapshot_step_of(swap: dict[str, Any]) -> int | float:
    """Mean snapshot step of the index in a record of `logged_swaps`."""
    return swap.get("mean_snapshot_step", swap["index_step"])  # earlier versions did not log it


def snapshot_steps(manifest: dict[str, Any]) -> list[int]:
    """Step of the snapshot of each segment of a published index, given its manifest."""
    return [entry["snapshot_step"] for entry in manifest.get("segments", [])] or [manifest["step"]]


def mean_snapshot_step(manifest: dict[str, Any]) -> int | float:
    """Step of the snapshot of a published index: the mean over its segments, given its manifest."""
    steps = snapshot_steps(manifest)
    mean = sum(steps) / len(steps)
    return int(mean) if mean == int(mean) else mean


def required_indexes(run: RunDir, refresh: ConfigDict) -> set[int]:
    """Steps of the indexes that the run still needs: to resume a checkpoint, and for the export.

    A resumed run repeats the swaps that were logged from the step of its checkpoint on; one at that
    step may be later than the checkpoint. In sync mode, it searches the index of every snapshot
    since its checkpoint: builders only build the newest snapshot, so none of these indexes may be
    deleted. If the newest checkpoint is damaged, the run resumes from the oldest one.
    """
    manifests = checkpoint_manifests(run, REALM)
    needed = {index for manifest in manifests for _, index in swap_log_of(manifest)[-1:]}
    oldest = manifests[0]["step"] if manifests else 0
    needed |= {index for first, index in read_swaps(run) if first >= oldest}
    if refresh.mode == "sync":
        since = oldest - oldest % refresh.every
        needed |= {step for step in commit.steps(run.published_index) if step >= since}
    exported = index_step_of_export(run)
    return needed if exported is None else needed | {exported}


def index_step_of_export(run: RunDir) -> int | None:
    """The step of the published index that belongs to the newest export; None without an export.

    Raises:
      DamageError: the manifest of the export is damaged.
    """
    newest = commit.latest(run.export)
    folder = None if newest is None else run.export / step_name(newest)
    manifest = None if folder is None else commit.read_manifest(folder, index_step=int)
    return None if manifest is None else int(manifest["index_step"])
