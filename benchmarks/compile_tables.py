"""Compiles the paper's sizes for one slice of each kind of TPU, and writes the tables.

Command:  python benchmarks/compile_tables.py            (needs the extra [tpu]; one at a time)
Hours:    a training step takes 7 minutes of processor time and 5 GiB, an embedding step 10 s
Writes:   realm_jax/planning/realm_wikipedia.json, which `realm plan` reads, and compile_tables.md
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from realm_jax import config as config_lib
from realm_jax.planning.chips import slice_of
from realm_jax.planning.plan import plan, seconds
from realm_jax.planning.reference_reports import GOLDEN, STEPS, read_reports, reports_for

HERE = Path(__file__).parent
CONFIG = HERE.parent / "experiments" / "realm_wikipedia.py"
SLICES = ("v4:4x4x4", "v5e:8x8", "v5p:4x4x4", "v6e:8x8")
SHARES = (0.2, 0.5)
PASSAGES = (13_353_718, 10**9, 10**11)
TABLES = HERE / "compile_tables.md"


def compile_all(slices: list[str]) -> None:
    """Each step in a process of its own: the compiler takes gigabytes and gives few back."""
    for name in slices:
        for step in STEPS:
            command = [sys.executable, "-m", "realm_jax.cli.main", "compile", f"--step={step}"]
            command += [f"--topology={name}", f"--config={CONFIG}", f"--save={GOLDEN}"]
            subprocess.run(command, check=True)


def tables() -> str:
    """Markdown, of the reports that are kept."""
    lines = [
        "# Compiled for TPUs that were not there",
        "",
        "Made by `python benchmarks/compile_tables.py` from `realm compile` with",
        "`experiments/realm_wikipedia.py`: BERT-base embedder and reader, batch 512, 8 candidates,",
        "96/288/384 word pieces, bfloat16, recomputed activations, pure data parallel. Per chip.",
        "",
        "| slice | step | peak HBM, GiB | share | FLOPs | of the count on paper | roofline, ms | "
        "products, traffic, talk, ms | compiled in, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    kept = read_reports(GOLDEN)
    lines += [_row(report) for report in kept]
    lines += [
        "",
        "| slice | step | collective | times a step | MB in all |",
        "|---|---|---|---|---|",
    ]
    for report in kept:
        for one in report["collectives"]:
            size = f"{one['bytes'] / 1e6:,.1f}"
            lines += [f"| {_of(report)} | {one['kind']} | {one['count']} | {size} |"]
    lines += ["", "What must hold: " + "; ".join(kept[0]["checks"]) + ".", ""]
    broken = [f"{_of(r)}: {name}" for r in kept for name, held in r["checks"].items() if not held]
    lines += ["Broken: " + ("; ".join(broken) or "nothing") + ".", ""]
    return "\n".join(lines + _plans())


def _of(report: dict[str, Any]) -> str:
    return f"{report['topology']} | {report['step']}"


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
        f"{report['compile_seconds']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _plans() -> list[str]:
    """The same slices planned, for three corpora."""
    config = config_lib.load(CONFIG)
    lines = [
        "## Plans",
        "",
        "`realm plan` on these reports; half of the roofline is taken to be reached.",
        "",
        "| trainer | passages | builder share | step, s | refresh | staleness, steps | index, GB | "
        "days | chip-hours | breaks first, at | broken |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    compiled = [(report["topology"], report["step"]) for report in read_reports(GOLDEN)]
    for name in sorted({name for name, step in compiled if (name, "train") in compiled}):
        place = slice_of(name)
        reports = reports_for(place)
        for passages in PASSAGES:
            for share in SHARES:
                made = plan(place, passages, share, config, reports)
                first = f"{made['breaks_first']}, {made['breaks_at_passages']:.2g}"
                cells = [name, f"{passages:.3g}", f"{share}", f"{made['step_seconds']:.3f}"]
                cells += [seconds(made["refresh_seconds"]), f"{made['staleness_steps']:,.0f}"]
                cells += [f"{made['index_bytes'] / 1e9:,.1f}", f"{made['days']:.1f}"]
                cells += [f"{made['chip_hours']:,.0f}", first, ", ".join(made["broken"]) or "-"]
                lines += [f"| {' | '.join(cells)} |"]
    return [*lines, ""]


def main() -> None:
    """Compiles, unless only the tables are asked for, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", nargs="*", default=list(SLICES))
    parser.add_argument("--tables_only", action="store_true", help="compile nothing")
    arguments = parser.parse_args()
    if not arguments.tables_only:
        compile_all(arguments.slices)
    TABLES.write_text(tables())


if __name__ == "__main__":
    main()
