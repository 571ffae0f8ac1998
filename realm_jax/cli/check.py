"""`realm check`: is a checkpoint, snapshot, index, export, corpus or run what it should be?"""

import argparse
import sys
from typing import Any

from etils import epath

EXAMPLE = "realm check runs/a/published_index/00000500"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("folder", help="what to verify")
    parser.add_argument("--repair", action="store_true", help="drop what is beyond use")
    parser.add_argument("--dry-run", action="store_true", help="with --repair: only say what")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Reads every byte; exit code 0 if all is sound, after the repair if there is one, 1 if not."""
    from realm_jax.artifacts.repair import repair
    from realm_jax.artifacts.verify import check, check_steps
    from realm_jax.storage.layout import path_of

    folder = path_of(arguments.folder)
    repairs = repair(folder, dry_run=arguments.dry_run) if arguments.repair else []
    for one in repairs:
        would = "would be " if arguments.dry_run else ""
        sys.stderr.write(f"{one['file']}: {one['because']}: {would}{one['done']}\n")
    if repairs:
        _tell_of_lost_index(folder)
    dropped = repairs and not folder.exists()  # then what matters is what is left beside it
    report = check_steps(folder.parent) if dropped else check(folder)
    for problem in report["problems"]:
        sys.stderr.write(f"{problem['file']}\n")
        sys.stderr.write(f"  expected: {problem['expected']}\n  found:    {problem['found']}\n")
    sys.stderr.write(f"{report['kind']}: {_verdict(report)}\n")
    if not arguments.repair and (repairable := _repairable(folder, report)):
        sys.stderr.write(f"stop both jobs, and drop it: realm check --repair {repairable}\n")
    return {**report, "repairs": repairs, "exit_code": 0 if report["ok"] else 1}


def _tell_of_lost_index(folder: epath.Path) -> None:
    """Without it the run answers no more, and is sound all the same."""
    from realm_jax.artifacts.export import missing_index
    from realm_jax.artifacts.verify import run_of
    from realm_jax.storage.layout import RunDir

    run = run_of(folder)
    lost = None if run is None else missing_index(RunDir(run))
    if lost is not None:
        sys.stderr.write(f"{lost}: the newest export answers with it\n")
        sys.stderr.write(f"  fix:      build it again: realm run --workdir={run}\n")


def _verdict(report: dict[str, Any]) -> str:
    if not report["ok"]:
        return "NOT SOUND"
    unseen = report["kind"] == "weights"
    return "can be read; these files keep no checksums" if unseen else "sound"


def _repairable(folder: epath.Path, report: dict[str, Any]) -> epath.Path | None:
    """The step or the run that a repair would help; it leaves corpora and configs as they are."""
    from realm_jax.artifacts.verify import run_of
    from realm_jax.storage.layout import CONFIG, CORPUS, MANIFEST, step_of

    if step_of(folder.name) is not None and (folder / MANIFEST).exists():
        return None if report["ok"] else folder
    kept = [problem["file"].split("/")[0] in (CONFIG, CORPUS) for problem in report["problems"]]
    steps = report["kind"] in ("run", "steps") and not all(kept)
    return run_of(folder) if steps else None
