"""`realm check`: verifies a checkpoint, snapshot, index, export, corpus or run."""

import argparse
import shlex
import sys
from typing import Any

from etils import epath

from realm_jax.cli.arguments import add_flag, add_json
from realm_jax.cli.overrides import PATHS

EXAMPLE = "realm check runs/a/published_index/00000500"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument("folder", help="folder to verify")
    add_json(parser)
    parser.set_defaults(overridable=PATHS)
    add_flag(
        parser,
        "--repair",
        "delete damaged folders and files that are in no manifest, and correct LATEST.json",
    )
    add_flag(parser, "--dry-run", "with --repair: print what would be deleted, delete nothing")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Reads every byte; exit code 0 if all checksums match (after --repair, if given), else 1."""
    from realm_jax.artifacts.repair import repair
    from realm_jax.artifacts.verify import check, check_steps
    from realm_jax.storage.layout import path_of

    folder = path_of(arguments.folder)
    repairs = repair(folder, dry_run=arguments.dry_run) if arguments.repair else []
    for one in repairs:
        would = "would be " if arguments.dry_run else ""
        sys.stderr.write(f"{one['file']}: {one['because']}: {would}{one['done']}\n")
    dropped = repairs and not folder.exists()  # then check the remaining steps
    report = check_steps(folder.parent) if dropped else check(folder, arguments.overrides)
    for problem in report["problems"]:
        sys.stderr.write(f"{problem['file']}\n")
        sys.stderr.write(f"  expected: {problem['expected']}\n  found:    {problem['found']}\n")
        if problem.get("fix"):
            sys.stderr.write(f"  fix:      {problem['fix']}\n")
    if repairs or report["kind"] == "run":
        _report_lost_index(folder)
    sys.stderr.write(f"{report['kind']}: {_verdict(report)}\n")
    if not arguments.repair and (repairable := _repairable(folder, report)):
        sys.stderr.write(
            "to delete what is damaged, stop both jobs and run: "
            f"realm check --repair {shlex.quote(str(repairable))}\n"
        )
    return {**report, "repairs": repairs, "exit_code": 0 if report["ok"] else 1}


def _report_lost_index(folder: epath.Path) -> None:
    """Reports an export whose index is missing: the run is valid but cannot answer questions."""
    from realm_jax.artifacts.corpus_change import train_command
    from realm_jax.artifacts.export import missing_index
    from realm_jax.artifacts.verify import run_of
    from realm_jax.storage.layout import RunDir

    run = run_of(folder)
    if run is None:
        return
    lost = missing_index(RunDir(run))
    if lost is not None:
        sys.stderr.write(f"{lost} is missing; the newest export needs it to answer questions\n")
        sys.stderr.write(f"  fix:      build it: {train_command(run, {})}\n")


def _verdict(report: dict[str, Any]) -> str:
    if not report["ok"]:
        return "NOT VALID"
    unseen = report["kind"] == "weights"
    return "can be read; these files have no checksums" if unseen else "valid"


def _repairable(folder: epath.Path, report: dict[str, Any]) -> epath.Path | None:
    """The step or run that --repair can fix; it does not touch corpora and configs."""
    from realm_jax.artifacts.verify import run_of
    from realm_jax.storage.layout import CONFIG, CORPUS, MANIFEST, step_of

    if step_of(folder.name) is not None and (folder / MANIFEST).exists():
        return None if report["ok"] else folder
    damage = [problem for problem in report["problems"] if "fix" not in problem]
    kept = [problem["file"].split("/")[0] in (CONFIG, CORPUS) for problem in damage]
    steps = report["kind"] in ("run", "steps") and not all(kept)
    return run_of(folder) if steps else None
