"""`--dry-run` of run, train, finetune and index: checks all inputs and prints the plan."""

import argparse
import sys
from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax.artifacts.corpus_change import corpus_change, has_usable_index
from realm_jax.artifacts.run_config import open_knowledge
from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.index_builder.once import plan_once
from realm_jax.index_builder.refresh_config import refresh_config
from realm_jax.storage import commit
from realm_jax.storage.disk_space import free_bytes
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.trainer.disk_estimate import index_bytes
from realm_jax.trainer.inputs import cut_pieces
from realm_jax.trainer.prepare import STAGES, prepare
from realm_jax.trainer.resume import CONTINUES, other_settings


def dry_run(
    arguments: argparse.Namespace, config: ConfigDict, stages: tuple[str, ...] = STAGES
) -> dict[str, Any]:
    """Prepares a run as `realm run`, `train` and `finetune` do, and prints what it would do.

    Raises:
      RealmError: the error that would stop the command without `--dry-run` at its start.
    """
    prepared = prepare(arguments.workdir, config, stages)
    report = {
        "dry_run": True,
        "workdir": str(arguments.workdir),
        "passages": prepared.inputs.knowledge.passages(),
        "sentences": len(prepared.inputs.text),
        "questions": len(prepared.inputs.questions),
        "cut": cut_pieces(prepared.inputs.knowledge, config),
        "devices": prepared.mesh.devices.size,
        "parameters": prepared.num_params,
        "stages": [
            {"stage": one.name, "steps": one.steps, "batch": one.batch, "done": one.done}
            for one in prepared.stages
        ],
        "refresh_every": config.refresh.every,
        "other_settings": other_settings(prepared.run_dir, config),
        "ended": prepared.ended,
        "corpus_change": None if prepared.corpus_change is None else str(prepared.corpus_change),
        "bytes": prepared.disk_bytes,
        "free_bytes": prepared.free_bytes,
    }
    _print(arguments, _run_lines(report) + _last_lines(report))
    return report


def dry_run_index(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints what `realm index` would build from the newest snapshot, or that it would wait."""
    run = RunDir(arguments.workdir)
    step = commit.latest(run.snapshots)
    report: dict[str, Any] = {"dry_run": True, "workdir": str(arguments.workdir), "snapshot": step}
    if step is None:
        lines = [f"would wait for the first snapshot in {run.snapshots}"]
    else:
        snapshot = read_snapshot(run.snapshots / step_name(step))
        config = refresh_config(run, snapshot, arguments.overrides)
        store = open_knowledge(run, config)
        passages, change = store.passages(), corpus_change(run, step, store)
        embedder = sum(leaf.size for leaf in jax.tree.leaves(snapshot.params["embedder"]))
        report |= {
            "passages": passages,
            "published": has_usable_index(run, step, store),
            "corpus_change": None if change is None else str(change),
            "bytes": index_bytes(config, passages, embedder),
        }
        state = "is published already" if report["published"] else "would be built"
        state += "" if change is None else f" again, the corpus has changed ({change})"
        lines = [
            f"index of step {step}: {state}, {passages:,} passages of "
            f"{config.corpus.knowledge}, about {format_bytes(report['bytes'])}"
        ]
    report["free_bytes"] = free_bytes(arguments.workdir)
    _print(arguments, lines + _last_lines(report))
    return report


def dry_run_once(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints what `realm index --once` would do."""
    found = plan_once(arguments.workdir, arguments.overrides)
    free = {"workdir": str(arguments.workdir), "free_bytes": free_bytes(arguments.workdir)}
    report = {"dry_run": True, **found, **free}
    line = "index     {added:,} passages would be added, {replaced:,} replaced, {removed:,} removed"
    _print(arguments, [line.format(**found), *_last_lines(report)])
    return report


def format_bytes(count: int) -> str:
    """A number of bytes with a decimal unit, such as "1.2 GB"."""
    for unit, bytes in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= bytes:
            return f"{count / bytes:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def _run_lines(report: dict[str, Any]) -> list[str]:
    devices = report["devices"]
    lines = [
        f"corpus    {report['passages']:,} passages, {report['sentences']:,} passages of masked "
        f"text, {report['questions']:,} questions",
        f"model     {sum(report['parameters'].values()):,} parameters, "
        f"{devices} device{'s' if devices > 1 else ''}",
    ]
    if report["cut"]["passages"]:
        lines.append(
            f"cut       {report['cut']['passages']:,} passages are longer than rows of the index; "
            f"{report['cut']['pieces']:,} word pieces of them are never read"
        )
    for stage in report["stages"]:
        line = f"{stage['stage']:<9} {stage['steps']:,} steps of {stage['batch']} queries"
        line += f", {stage['done']:,} done"
        if stage["stage"] == "realm":
            line += f"; a snapshot and its index every {report['refresh_every']:,} steps"
        lines.append(line)
    if report["other_settings"]:
        lines += [f"settings  {CONTINUES}:", f"          {report['other_settings']}"]
    if report["corpus_change"]:
        lines.append("index     would be built again: the knowledge corpus has changed;")
        lines.append(f"          {report['corpus_change']}")
    for folder, count in report["bytes"].items():
        lines.append(f"          {folder}/ about {format_bytes(count)}")
    return lines


def _last_lines(report: dict[str, Any]) -> list[str]:
    free = report["free_bytes"]
    space = "" if free is None else f", {format_bytes(free)} free"
    return [f"folder    {report['workdir']}{space}", "all inputs are valid; nothing was written"]


def _print(arguments: argparse.Namespace, lines: list[str]) -> None:
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
