"""Compiles a program for TPUs without having them; reports memory, FLOPs, traffic and time."""

import time
from importlib import metadata
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.config import value_of
from realm_jax.errors import RealmError
from realm_jax.parallel.sharding import local_mesh, make_mesh
from realm_jax.planning import costs, hlo
from realm_jax.planning.chips import Chip, Slice
from realm_jax.planning.lowered import LoweredProgram
from realm_jax.planning.plan import seconds
from realm_jax.planning.programs import lower
from realm_jax.planning.reference_reports import BERT_VOCABULARY, WIKIPEDIA
from realm_jax.planning.topology import devices_of

MOST_HBM = 0.85  # share of a chip's memory that a step may use
MOST_FLOPS_OFF = 0.1  # relative difference from the FLOPs computed from the config
# Keys that change the memory and the time of a program, but not what it computes.
_CHOICES = ("model.attention", "model.remat", "model.scan", "optimizer.accumulate_steps")
_MOST_GATHERED = 0.5  # share of the parameters that all-gathers may move without fsdp


def compile_report(
    config: ConfigDict,
    target: Slice,
    name: str,
    vocabulary: int = BERT_VOCABULARY,
    passages: int = WIKIPEDIA,
) -> dict[str, Any]:
    """Lowers and compiles one program and analyses the result.

    Args:
      config: of the run; its corpora are not opened.
      target: the slice of the trainer; a builder has one machine of its kind.
      name: of the program; see `planning.programs`.
      vocabulary: V, size of the vocabulary.
      passages: N, size of the knowledge corpus.

    Returns:
      JSON: bytes, FLOPs and seconds by name, all per chip; `checks` maps a check to its result.

    Raises:
      InputError: the config has no such program.
      RealmError: the TPU compiler is missing, or the program does not fit into memory.
      ConfigError: the mesh does not divide the chips or the batch.
    """
    mesh = make_mesh(config.mesh, devices_of(target))
    program = lower(name, config, mesh, machine_mesh(target), vocabulary, passages)
    started = time.monotonic()
    try:
        compiled = program.lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        raise _too_large(error, program, target) from error
    compile_seconds = time.monotonic() - started
    report = describe(program, target, compiled.memory_analysis(), compiled.as_text())
    fsdp = dict(mesh.shape).get("fsdp", 1)
    return {
        "topology": target.name,
        "name": name,
        "job": program.job,
        "mesh": {name: size for name, size in mesh.shape.items() if size > 1},
        "config": {key: value_of(config, key) for key in _CHOICES},
        **report,
        "checks": checks(report, program.parameter_bytes, fsdp, target.slices),
        "compile_seconds": compile_seconds,
        "versions": {name: metadata.version(name) for name in ("jax", "libtpu")},
    }


def machine_mesh(target: Slice) -> Mesh:
    """The devices of one machine with chips of this kind.

    The TPU compiler needs all devices of a slice, so this is the smallest slice.
    """
    return local_mesh(devices_of(Slice(target.kind, target.chip.shapes[0])))


def describe(program: LoweredProgram, target: Slice, memory: Any, text: str) -> dict[str, Any]:
    """Computes the costs of a compiled program per chip.

    Args:
      program: the program before compilation.
      target: the slice that it was compiled for.
      memory: `compiled.memory_analysis()`.
      text: `compiled.as_text()`.
    """
    parsed = hlo.parse(text)
    kinds = {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "shared by both": -memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "program": memory.generated_code_size_in_bytes,
    }
    peak = sum(kinds.values())
    flops = costs.product_flops(parsed)
    collectives = costs.collectives(parsed)
    traffic = costs.hbm_traffic(parsed)
    moved = sum(traffic.values())
    times = roofline(target.chip, program.chips, flops, moved, collectives)
    return {
        "program": program.program,
        "chips": program.chips,
        "rows": program.rows,
        "hbm_bytes_chip": target.chip.hbm_bytes,
        "hbm_bytes_peak": peak,
        "hbm_share": peak / target.chip.hbm_bytes,
        "hbm_bytes_by_kind": kinds,
        "flops_per_chip": flops,
        "flops_analytic_ratio": flops * program.chips / program.flops if program.flops else 1.0,
        "hbm_traffic_bytes": moved,
        "traffic_by_kind": traffic,
        "collectives": collectives,
        "roofline_seconds": max(times.values()),
        "roofline": times,
        "mfu_bound": mfu_bound(target.chip, program, max(times.values())),
        "host_calls": costs.host_calls(parsed),
    }


def roofline(
    chip: Chip, chips: int, flops: float, traffic: float, collectives: list[dict[str, Any]]
) -> dict[str, float]:
    """Lower bounds of the seconds for FLOPs, HBM traffic and links, each at the chip's full speed.

    For a collective, a chip sends (chips - 1) / chips of its bytes over all links; for an
    all-reduce twice as many.
    """
    share = (chips - 1) / chips
    sent = sum(
        one["bytes"] * share * (2 if one["kind"] == "all-reduce" else 1) for one in collectives
    )
    return {
        "compute": flops / chip.flops,
        "memory": traffic / chip.hbm_bandwidth,
        "links": sent / chip.ici_bandwidth,
    }


def mfu_bound(chip: Chip, program: LoweredProgram, roofline_seconds: float) -> float:
    """The model-FLOPs utilisation of a program that runs in `roofline_seconds`; at most 1.

    It counts the useful FLOPs only: no recomputation. A program without products has 0.
    """
    useful_seconds = program.useful_flops / program.chips / chip.flops
    return useful_seconds / roofline_seconds if roofline_seconds else 0.0


def checks(
    report: dict[str, Any], parameter_bytes: int, fsdp: int, slices: int = 1
) -> dict[str, bool]:
    """Checks that hold for every program on every chip; maps each to its result.

    To reduce over slices, a chip exchanges its share of a sum between slices and gathers the other
    shares within its slice: up to as many bytes as are reduced.
    """
    moved = {one["kind"]: one["bytes"] for one in report["collectives"]}
    gathered = moved.get("all-gather", 0) - (moved.get("all-reduce", 0) if slices > 1 else 0)
    return {
        f"peak memory at most {MOST_HBM:.0%} of the chip": report["hbm_share"] <= MOST_HBM,
        f"FLOPs within {MOST_FLOPS_OFF:.0%} of those computed from the config": abs(
            report["flops_analytic_ratio"] - 1
        )
        <= MOST_FLOPS_OFF,
        "no all-gather of all parameters without fsdp": fsdp > 1
        or not parameter_bytes  # a search of vectors gathers its hits
        or gathered <= _MOST_GATHERED * parameter_bytes,
        "no host calls in the step": not report["host_calls"],
    }


def _too_large(error: Exception, program: LoweredProgram, target: Slice) -> RealmError:
    message = str(error)
    if "RESOURCE_EXHAUSTED" not in message:
        return RealmError("the TPU compiler failed", where=target.name, found=message[:500])
    return RealmError(
        f"the program {program.name} does not fit into the memory of a chip",
        where=target.name,
        expected=f"at most {target.chip.hbm_bytes / 2**30:.0f} GiB",
        found=message.splitlines()[0][:300],
        fix="--config.model.remat=full, --config.model.compute=bfloat16, or more chips",
    )


def report_lines(report: dict[str, Any]) -> list[str]:
    """Formats a report as lines of text."""
    gib, mega = 2**30, 1e6
    times = ", ".join(f"{name} {value * 1e3:.1f}" for name, value in report["roofline"].items())
    kinds = ", ".join(f"{k} {v / gib:.2f}" for k, v in report["hbm_bytes_by_kind"].items())
    moved = ", ".join(f"{k} {v / 1e9:.1f}" for k, v in report["traffic_by_kind"].items())
    lines = [
        f"{report['name']} ({report['job']}) on {report['topology']}, "
        f"{report['chips']} chips, {report['rows']} rows; all numbers are per chip",
        f"memory      {report['hbm_bytes_peak'] / gib:.2f} of "
        f"{report['hbm_bytes_chip'] / gib:.0f} GiB ({report['hbm_share']:.0%}): {kinds}",
        f"FLOPs       {report['flops_per_chip']:.3e}, {report['flops_analytic_ratio']:.3f} times "
        "those computed from the config",
        f"traffic     {report['hbm_traffic_bytes'] / 1e9:.1f} GB of device memory: {moved}",
        f"roofline    {report['roofline_seconds'] * 1e3:.1f} ms, the largest of (ms) {times}",
        f"MFU         at most {report['mfu_bound']:.0%}, at the roofline",
    ]
    for one in report["collectives"]:
        lines += [f"{one['kind']:<18} {one['count']:>6} x, {one['bytes'] / mega:,.1f} MB in total"]
    lines += [
        f"{'passed' if passed else 'FAILED':<11} {name}"
        for name, passed in report["checks"].items()
    ]
    if "refresh" in report:
        refresh = report["refresh"]
        lines += [
            f"refresh     at least {seconds(refresh['seconds'])}: {refresh['passages']:,} passages "
            f"on {refresh['builder_chips']} chips, while {report['chips']} chips train"
        ]
    return [*lines, f"compiled in {report['compile_seconds']:.0f} s"]
