"""`--dry-run` of the jobs: checks every input, and says what would be done; writes nothing."""

import argparse
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import RealmError
from realm_jax.index_builder.run import refresh_config
from realm_jax.interop.warm_start import load_networks
from realm_jax.models.modules import Modules
from realm_jax.monitoring.writers import check_writers
from realm_jax.storage import commit, follow
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.trainer.inputs import Inputs, open_inputs
from realm_jax.trainer.resume import check_run_config, require_pretrained
from realm_jax.trainer.run import STAGES, mesh_of

_TRAINED = {
    "reader": ("reader", "span_head"),
    "ict": ("embedder",),
    "realm": ("embedder", "reader"),
    "qa": ("embedder", "reader", "span_head"),
}
_FLOAT = 4  # bytes
_MOMENTS = 2  # arrays that the optimiser keeps beside each parameter


def dry_run(
    arguments: argparse.Namespace, config: ConfigDict, stages: tuple[str, ...] = STAGES
) -> dict[str, Any]:
    """What `realm run`, `train` or `finetune` would do with this config.

    Raises:
      RealmError: whatever would stop the real command at its start.
    """
    run = RunDir(arguments.workdir)
    inputs = open_inputs(config)
    mesh = mesh_of(config)
    check_writers(config)
    check_run_config(run, config)
    if stages == ("qa",):
        require_pretrained(run, config)
    modules = Modules(config.model, inputs.knowledge.vocabulary.size, _TRAINED["qa"])
    load_networks(config.model.start, modules.shapes, config.model)
    sizes = {name: _count(shapes) for name, shapes in modules.shapes.items()}
    report = {
        "dry_run": True,
        "workdir": str(arguments.workdir),
        "passages": len(inputs.knowledge),
        "sentences": len(inputs.text),
        "questions": len(inputs.questions),
        "devices": mesh.devices.size,
        "parameters": sizes,
        "stages": _stages(run, config, inputs, stages),
        "refresh_every": config.refresh.every,
        "ended": follow.ended(run),
    }
    report["bytes"] = _bytes(config, inputs, sizes, [stage["stage"] for stage in report["stages"]])
    report["free_bytes"] = free_bytes(arguments.workdir)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(report)))
    return report


def dry_run_index(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `realm index` would do with the newest snapshot, or that it would wait for one."""
    run = RunDir(arguments.workdir)
    step = commit.latest(run.snapshots)
    report: dict[str, Any] = {"dry_run": True, "workdir": str(arguments.workdir), "snapshot": step}
    if step is None:
        lines = [f"would wait for the first snapshot in {run.snapshots}"]
    else:
        snapshot = read_snapshot(run.snapshots / step_name(step))
        config = refresh_config(run, snapshot)
        store = PassageStore.open(config.corpus.knowledge)
        report |= {
            "passages": len(store),
            "published": commit.latest(run.published_index) == step,
            "bytes": _index_bytes(config, len(store))
            + _FLOAT * _count(snapshot.params["embedder"]),
        }
        done = "is published already" if report["published"] else "would be built"
        lines = [
            f"index of step {step}: {done}, {len(store):,} passages of "
            f"{config.corpus.knowledge}, about {size(report['bytes'])}"
        ]
    report["free_bytes"] = free_bytes(arguments.workdir)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in [*lines, *_disk(report)]))
    return report


def free_bytes(folder: str | os.PathLike[str]) -> int | None:
    """Free bytes where a folder is or would be; None in an object store.

    Raises:
      RealmError: it may not be written to.
    """
    if "://" in os.fspath(folder):
        return None
    there = next(
        p for p in [Path(folder).absolute(), *Path(folder).absolute().parents] if p.exists()
    )
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise RealmError(
            "nothing can be written there",
            where=folder,
            expected="a folder that you may write to",
            found=there if there.is_dir() else f"{there}, a file",
        )
    return shutil.disk_usage(there).free


def size(count: int) -> str:
    """1.2 GB."""
    for unit, bytes in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= bytes:
            return f"{count / bytes:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def _stages(
    run: RunDir, config: ConfigDict, inputs: Inputs, stages: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Those that have steps, and how many of these are done."""
    taught = [name for name in stages if name != "qa" or inputs.questions]
    return [
        {
            "stage": name,
            "steps": config.stages[name].steps,
            "batch": config.stages[name].batch,
            "done": commit.latest(run.checkpoints(name)) or 0,
        }
        for name in taught
        if config.stages[name].steps
    ]


def _bytes(
    config: ConfigDict, inputs: Inputs, sizes: dict[str, int], stages: list[str]
) -> dict[str, int]:
    """About what each folder of a run will hold when it is finished."""
    held = {stage: sum(sizes[name] for name in _TRAINED[stage]) for stage in stages}
    trained = sum(held.values()) * _FLOAT * (1 + _MOMENTS) * config.checkpoint.keep
    found = {"checkpoints": trained}
    if "realm" in held:
        index = _index_bytes(config, len(inputs.knowledge)) + _FLOAT * sizes["embedder"]
        found["snapshots"] = held["realm"] * _FLOAT * config.refresh.keep
        found["published_index"] = index * config.refresh.keep
    tuned = held.get("qa", 0)
    found["export"] = _FLOAT * (sizes["embedder"] + sizes["reader"] + tuned)
    return found


def _index_bytes(config: ConfigDict, passages: int) -> int:
    """Vectors in float16, the searcher's own in float32, the row map."""
    return passages * (config.model.embedding * (2 + _FLOAT) + 8)


def _count(shapes: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [
        f"corpus    {report['passages']:,} passages, masked text from {report['sentences']:,} of "
        f"them or of others, {report['questions']:,} questions",
        f"model     {sum(report['parameters'].values()):,} parameters, "
        f"{report['devices']} device{'s' if report['devices'] > 1 else ''}",
    ]
    for stage in report["stages"]:
        lines += [
            f"{stage['stage']:<9} {stage['steps']:,} steps of {stage['batch']}, "
            f"{stage['done']:,} done"
        ]
        if stage["stage"] == "realm":
            lines[-1] += f"; a snapshot and an index of it every {report['refresh_every']:,} steps"
    for folder, count in report["bytes"].items():
        lines += [f"          {folder}/ about {size(count)}"]
    return lines + _disk(report)


def _disk(report: dict[str, Any]) -> list[str]:
    free = report["free_bytes"]
    words = "" if free is None else f", {size(free)} free"
    return [f"folder    {report['workdir']}{words}", "all inputs are sound; nothing was written"]
