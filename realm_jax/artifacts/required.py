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
    """All swaps of a run: those in the newest checkpoint, then those logged after it."""
    kept = checkpoint_manifests(run, REALM)
    known = swap_log_of(kept[-1]) if kept else []
    last = known[-1][0] if known else -1
    later = [record for record in read_log(run.swaps) if record["step"] > last]
    return known + [(record["step"], record["index_step"]) for record in later]


def required_indexes(run: RunDir, refresh: ConfigDict) -> set[int]:
    """Steps of the indexes that the run still needs: to resume a checkpoint, and for the export.

    A resumed run repeats the swaps that were logged after its checkpoint. In sync mode, it searches
    the index of every snapshot since its checkpoint: builders only build the newest snapshot, so
    none of these indexes may be deleted.
    """
    manifests = checkpoint_manifests(run, REALM)
    needed = {index for manifest in manifests for _, index in swap_log_of(manifest)[-1:]}
    last = manifests[-1]["step"] if manifests else 0
    needed |= {index for first, index in read_swaps(run) if first > last}
    if refresh.mode == "sync":
        since = last - last % refresh.every
        needed |= {step for step in commit.steps(run.published_index) if step >= since}
    return needed | _index_of_export(run)


def _index_of_export(run: RunDir) -> set[int]:
    exported = commit.latest(run.export)
    if exported is None:
        return set()
    manifest = commit.read_manifest(run.export / step_name(exported), index_step=int)
    return set() if manifest is None else {manifest["index_step"]}
