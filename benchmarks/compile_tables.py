"""Compiles all programs of the paper's sizes for slices of each TPU generation; writes tables.

Command:  python benchmarks/compile_tables.py [--slices NAME ...] [--tables_only]
Needs:    the extra [tpu]; run only one at a time
Output:   realm_jax/planning/realm_wikipedia.json, which `realm plan` reads, and compile_tables.md
Time:     a training step takes 7 CPU minutes and 5 GiB of memory, other programs less
"""

import argparse
import subprocess
from pathlib import Path
from typing import Any

from realm_jax import config as config_lib
from realm_jax.planning.chips import slice_of
from realm_jax.planning.plan import plan, seconds
from realm_jax.planning.programs import names
from realm_jax.planning.reference_reports import REFERENCE_REPORTS, read_reports, reports_for
from realm_jax.runtime import realm_command

HERE = Path(__file__).parent
CONFIG = HERE.parent / "experiments" / "realm_wikipedia.py"
SLICES = ("v4:4x4x4", "v5e:8x8", "v5p:4x4x4", "v6e:8x8", "2xv5e:8x8")
SHARES = (0.2, 0.5)
PASSAGES = (13_353_718, 10**9, 10**11)
TABLES = HERE / "compile_tables.md"
CHOICES = ("model.attention", "model.remat", "optimizer.accumulate_steps")
# Where other choices than the config's are faster (`realm compile --advise`).
FASTER = {"v6e:8x8": {"model.remat": "full", "optimizer.accumulate_steps": "2"}}
BEFORE = {  # MFU bound before the TPU kernel of attention
    ("v4:4x4x4", "realm/train"): 0.60,
    ("v5e:8x8", "realm/train"): 0.54,
    ("v5p:4x4x4", "realm/train"): 0.57,
    ("v6e:8x8", "realm/train"): 0.25,
    ("v4:4x4x4", "realm/evaluate"): 0.71,
    ("v5e:8x8", "realm/evaluate"): 0.55,
    ("v5p:4x4x4", "realm/evaluate"): 0.71,
    ("v6e:8x8", "realm/evaluate"): 0.20,
    ("v4:4x4x4", "ict/train"): 0.69,
    ("v4:4x4x4", "ict/evaluate"): 0.93,
    ("v6e:8x8", "embed"): 0.42,
}


def compile_all(slices: list[str]) -> None:
    """Compiles each program in a new process, because the compiler does not free its memory.

    Programs that have a report are left out, so an interrupted command continues.
    """
    for name in slices:
        kept = {(one["topology"], one["name"]) for one in read_reports(REFERENCE_REPORTS)}
        for program in names(config_lib.load(CONFIG)):
            if (name, program) in kept:
                continue
            command = realm_command("compile", f"--step={program}", f"--topology={name}")
            command += [f"--config={CONFIG}", f"--save={REFERENCE_REPORTS}"]
            changes = {"mesh.replica": slice_of(name).slices, **FASTER.get(name, {})}
            command += [f"--config.{key}={value}" for key, value in changes.items()]
            subprocess.run(command, check=True)


def tables() -> str:
    """Returns the saved reports as Markdown tables."""
    lines = [
        "# Ahead-of-time compilation for TPU slices",
        "",
        "Written by `python benchmarks/compile_tables.py` from `realm compile` with",
        "`experiments/realm_wikipedia.py`: BERT-base embedder and reader, batch 512, 8 candidates,",
        "lengths 96/288/384 tokens, bfloat16, data parallelism only.",
        "No TPU is needed. All numbers are per chip. Two joined slices use `mesh.replica=2`.",
        "MFU bound: model-FLOPs utilisation at the roofline, without recomputed FLOPs. Before: of",
        "this program with attention in XLA, `model.remat=full` and one micro-batch. The roofline",
        "has matrix products, memory and links; exponentials and random bits are not in it.",
        "",
        "| slice | program | peak HBM, GiB | share of HBM | FLOPs | FLOPs / analytic count | "
        "roofline, ms | compute / HBM / ICI, ms | MFU bound | before | attention, recomputed, "
        "micro-batches | compile time, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    kept = read_reports(REFERENCE_REPORTS)
    lines += [_row(report) for report in kept]
    lines += [
        "",
        "| slice | program | collective | count per call | total MB |",
        "|---|---|---|---|---|",
    ]
    for report in kept:
        for one in report["collectives"]:
            size = f"{one['bytes'] / 1e6:,.1f}"
            lines += [f"| {_of(report)} | {one['kind']} | {one['count']} | {size} |"]
    lines += [
        "",
        "| slice | program | device-memory traffic | GB per call |",
        "|---|---|---|---|",
    ]
    for report in kept:
        for kind, moved in report.get("traffic_by_kind", {}).items():
            lines += [f"| {_of(report)} | {kind} | {moved / 1e9:,.1f} |"]
    lines += ["", "Checks: " + "; ".join(kept[0]["checks"]) + ".", ""]
    failed = [f"{_of(r)}: {name}" for r in kept for name, held in r["checks"].items() if not held]
    lines += ["Failed checks: " + ("; ".join(failed) or "none") + ".", ""]
    return "\n".join(lines + _plans())


def _of(report: dict[str, Any]) -> str:
    return f"{report['topology']} | {report['name']}"


def _row(report: dict[str, Any]) -> str:
    times = " / ".join(f"{value * 1e3:.1f}" for value in report["roofline"].values())
    cells = [
        _of(report),
        f"{report['hbm_bytes_peak'] / 2**30:.2f}",
        f"{report['hbm_share']:.0%}",
        f"{report['flops_per_chip']:.3e}",
        f"{report['flops_analytic_ratio']:.3f}",
        f"{report['roofline_seconds'] * 1e3:.1f}",
        times,
        f"{report['mfu_bound']:.0%}",
        f"{before:.0%}" if (before := BEFORE.get((report["topology"], report["name"]))) else "",
        ", ".join(str(report["config"][key]) for key in CHOICES),
        f"{report['compile_seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _plans() -> list[str]:
    """Returns a table of plans for the same slices and three corpus sizes."""
    config = config_lib.load(CONFIG)
    lines = [
        "## Plans",
        "",
        "`realm plan` on these reports, which assumes half of the roofline speed.",
        "",
        "| trainer | passages | builder share | step, s | refresh | staleness, steps | index, GB | "
        "days | chip-hours | first limit, at passages | failed checks |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    compiled = {(one["topology"], one["name"]) for one in read_reports(REFERENCE_REPORTS)}
    for name in (name for name in SLICES if (name, "realm/train") in compiled):
        tpu_slice = slice_of(name)
        reports = reports_for(tpu_slice)
        for passages in PASSAGES:
            for share in SHARES:
                found = plan(tpu_slice, passages, share, config, reports)
                first = f"{found['breaks_first']}, {found['breaks_at_passages']:.2g}"
                cells = [name, f"{passages:.3g}", f"{share}", f"{found['step_seconds']:.3f}"]
                cells += [seconds(found["refresh_seconds"]), f"{found['staleness_steps']:,.0f}"]
                cells += [f"{found['index_bytes'] / 1e9:,.1f}", f"{found['days']:.1f}"]
                cells += [f"{found['chip_hours']:,.0f}", first, ", ".join(found["broken"]) or "-"]
                lines += [f"| {' | '.join(cells)} |"]
    return [*lines, ""]


def main() -> None:
    """Compiles, unless `--tables_only` is set, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", nargs="*", default=list(SLICES))
    parser.add_argument(
        "--tables_only",
        action="store_true",
        help="do not compile; write the tables from saved reports",
    )
    arguments = parser.parse_args()
    if not arguments.tables_only:
        compile_all(arguments.slices)
    TABLES.write_text(tables())


if __name__ == "__main__":
    main()
