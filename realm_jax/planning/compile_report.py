"""Compiles a step for chips that are not here and says what it would take of them."""

import time
from importlib import metadata
from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax.errors import RealmError
from realm_jax.parallel.sharding import make_mesh
from realm_jax.planning import costs, hlo
from realm_jax.planning.chips import Chip, Slice
from realm_jax.planning.plan import seconds
from realm_jax.planning.programs import Program, embed_program, train_program
from realm_jax.planning.reference_reports import BERT_VOCABULARY
from realm_jax.planning.topology import devices_of

MOST_HBM = 0.85  # share of a chip's memory that a step may take
MOST_FLOPS_OFF = 0.1  # of the count on paper
_MOST_GATHERED = 0.5  # of all parameters, by all-gathers of a mesh without fsdp


def compile_report(
    config: ConfigDict, place: Slice, step: str, vocabulary: int = BERT_VOCABULARY
) -> dict[str, Any]:
    """Lowers, compiles and reads one step.

    Args:
      config: of the run; its corpora are not opened.
      place: the slice; the mesh of the config is laid over its chips.
      step: `train` or `embed`.
      vocabulary: V.

    Returns:
      JSON: bytes, FLOPs and seconds by name, all per chip, and `checks`: name to whether it holds.

    Raises:
      RealmError: the TPU compiler is missing, or the step does not fit the chip.
      ConfigError: a mesh or a batch that does not divide.
    """
    mesh = make_mesh(config.mesh, devices_of(place))
    make = {"train": train_program, "embed": embed_program}[step]
    program = make(config, mesh, vocabulary)
    began = time.monotonic()
    try:
        compiled = program.lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        raise _too_large(error, place) from error
    took = time.monotonic() - began
    report = describe(program, place, compiled.memory_analysis(), compiled.as_text())
    fsdp = dict(mesh.shape).get("fsdp", 1)
    return {
        "topology": place.name,
        "step": step,
        "mesh": {name: size for name, size in mesh.shape.items() if size > 1},
        **report,
        "checks": checks(report, program.parameter_bytes, fsdp),
        "compile_seconds": took,
        "versions": {name: metadata.version(name) for name in ("jax", "libtpu")},
    }


def describe(program: Program, place: Slice, memory: Any, text: str) -> dict[str, Any]:
    """What a compiled program takes of each chip.

    Args:
      program: what was compiled.
      place: for which chips.
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
    talk = costs.collectives(parsed)
    traffic = costs.hbm_traffic(parsed)
    times = roofline(place.chip, place.chips, flops, traffic, talk)
    return {
        "program": program.name,
        "chips": place.chips,
        "rows": program.rows,
        "hbm_bytes_chip": place.chip.hbm_bytes,
        "hbm_bytes_peak": peak,
        "hbm_share": peak / place.chip.hbm_bytes,
        "hbm_bytes_by_kind": kinds,
        "flops_per_chip": flops,
        "flops_analytic_ratio": flops * place.chips / program.flops,
        "hbm_traffic_bytes": traffic,
        "collectives": talk,
        "roofline_seconds": max(times.values()),
        "roofline": times,
        "host_calls": costs.host_calls(parsed),
    }


def roofline(
    chip: Chip, chips: int, flops: float, traffic: float, talk: list[dict[str, Any]]
) -> dict[str, float]:
    """Least seconds of products, of memory and of talk, each at the chip's full speed.

    On a torus an all-gather takes its bytes over all links at once, an all-reduce twice that.
    """
    share = (chips - 1) / chips
    sent = sum(one["bytes"] * share * (2 if one["kind"] == "all-reduce" else 1) for one in talk)
    return {
        "compute": flops / chip.flops,
        "memory": traffic / chip.hbm_bandwidth,
        "links": sent / chip.ici_bandwidth,
    }


def checks(report: dict[str, Any], parameter_bytes: int, fsdp: int) -> dict[str, bool]:
    """What a step must keep to, whatever the chip."""
    gathered = sum(one["bytes"] for one in report["collectives"] if one["kind"] == "all-gather")
    return {
        f"peak memory at most {MOST_HBM:.0%} of the chip": report["hbm_share"] <= MOST_HBM,
        f"FLOPs within {MOST_FLOPS_OFF:.0%} of the count on paper": abs(
            report["flops_analytic_ratio"] - 1
        )
        <= MOST_FLOPS_OFF,
        "no all-gather of whole parameters outside fsdp": fsdp > 1
        or gathered <= _MOST_GATHERED * parameter_bytes,
        "no call of the host in the step": not report["host_calls"],
    }


def _too_large(error: Exception, place: Slice) -> RealmError:
    said = str(error)
    if "RESOURCE_EXHAUSTED" not in said:
        return RealmError("the TPU compiler failed", where=place.name, found=said[:500])
    return RealmError(
        "the step does not fit the memory of a chip",
        where=place.name,
        expected=f"at most {place.chip.hbm_bytes / 2**30:.0f} GiB",
        found=said.splitlines()[0][:300],
        fix="--config.model.remat=true, --config.model.compute=bfloat16, or more chips",
    )


def report_lines(report: dict[str, Any]) -> list[str]:
    """A table for people."""
    gib, mega = 2**30, 1e6
    times = ", ".join(f"{name} {value * 1e3:.1f}" for name, value in report["roofline"].items())
    kinds = ", ".join(f"{k} {v / gib:.2f}" for k, v in report["hbm_bytes_by_kind"].items())
    lines = [
        f"{report['step']} step ({report['program']}) on {report['topology']}, "
        f"{report['chips']} chips, {report['rows']} rows; all figures per chip",
        f"memory      {report['hbm_bytes_peak'] / gib:.2f} of "
        f"{report['hbm_bytes_chip'] / gib:.0f} GiB ({report['hbm_share']:.0%}): {kinds}",
        f"FLOPs       {report['flops_per_chip']:.3e}, {report['flops_analytic_ratio']:.3f} of the "
        "count on paper",
        f"roofline    {report['roofline_seconds'] * 1e3:.1f} ms, the longest of (ms) {times}",
    ]
    for one in report["collectives"]:
        lines += [f"{one['kind']:<18} {one['count']:>6} x, {one['bytes'] / mega:,.1f} MB in all"]
    lines += [
        f"{'holds' if held else 'BROKEN':<11} {name}" for name, held in report["checks"].items()
    ]
    if "refresh" in report:
        refresh = report["refresh"]
        lines += [
            f"refresh     {seconds(refresh['seconds'])} at least: {refresh['passages']:,} passages "
            f"on {refresh['builder_chips']} such chips beside {report['chips']} that train"
        ]
    return [*lines, f"compiled in {report['compile_seconds']:.0f} s"]
