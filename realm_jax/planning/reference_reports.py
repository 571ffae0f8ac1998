"""Compile reports that were kept: of the paper's sizes, on one slice of each kind of chip."""

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax.errors import InputError, MismatchError
from realm_jax.planning.chips import Slice
from realm_jax.planning.flops import embed_flops, train_flops

REFERENCE_REPORTS = Path(__file__).with_name("realm_wikipedia.json")  # of experiments/realm_wikipedia.py
BERT_VOCABULARY = 30_522  # word pieces of BERT-base uncased
WIKIPEDIA = 13_353_718  # passages of the paper's knowledge corpus
STEPS = ("train", "embed")
_MOST_OFF = 0.05  # of the count on paper: a report does not tell its vocabulary


def add_report(path: Path, report: dict[str, Any]) -> None:
    """Puts a report among those of a file, in the place of an older one of the same step."""
    kept = read_reports(path) if path.exists() else []
    key = (report["topology"], report["program"])
    kept = [one for one in kept if (one["topology"], one["program"]) != key]
    kept = sorted([*kept, report], key=lambda one: (one["topology"], one["program"]))
    path.write_text(json.dumps(kept, indent=1) + "\n")


def read_reports(path: Path) -> list[dict[str, Any]]:
    """Reports of `realm compile --save`.

    Raises:
      InputError: a file that holds none.
    """
    try:
        found = json.loads(path.read_text())
        known = all({"topology", "step", "program"} <= one.keys() for one in found)
    except (OSError, ValueError, AttributeError, TypeError):
        known = False
    if not known:
        raise InputError(
            "no compile reports",
            where=path,
            expected="a file of `realm compile --save`",
            fix=f"realm compile --topology=NAME --config=FILE --step=train --save={path}",
        )
    return found


def reports_for(place: Slice, path: Path = REFERENCE_REPORTS) -> dict[str, dict[str, Any]]:
    """Step to report: of this slice, or else of another one of the same chips.

    Raises:
      InputError: a step that was compiled for no such chip.
    """
    kept = [one for one in read_reports(path) if one["topology"].startswith(f"{place.kind}:")]
    chosen = {}
    for step in STEPS:
        fitting = [one for one in kept if one["step"] == step and one["program"] != "ict"]
        fitting.sort(key=lambda one: one["topology"] != place.name)
        if not fitting:
            raise InputError(
                f"step {step} was never compiled for {place.kind}",
                where=path,
                fix=f"realm compile --topology={place.name} --step={step} --save={path} …, then "
                f"realm plan --reports={path}",
            )
        chosen[step] = fitting[0]
    return chosen


def check_sizes(reports: dict[str, dict[str, Any]], config: ConfigDict, path: Path) -> None:
    """Refuses reports of another model, batch or lengths than the config's.

    Whether activations are recomputed (`model.remat`) is the report's to say.

    Args:
      reports: of `reports_for`.
      config: of the run that is planned.
      path: of the reports' file.

    Raises:
      MismatchError: the work of a report's step is not that of the config.
    """
    for step, report in reports.items():
        counted = report["flops_per_chip"] * report["chips"] / report["flops_analytic_ratio"]
        wanted = _counts(step, report, config)
        if all(abs(counted / one - 1) > _MOST_OFF for one in wanted):
            raise MismatchError(
                f"the compile report of step {step} is of other sizes than the config",
                where=path,
                expected=f"{min(wanted):.3g} FLOPs a step",
                found=f"{counted:.3g}",
                fix=f"realm compile --topology={report['topology']} --config=FILE --step={step} "
                "--save=REPORTS, then realm plan --config=FILE --reports=REPORTS",
            )


def _counts(step: str, report: dict[str, Any], config: ConfigDict) -> list[float]:
    """FLOPs of a step on paper, without and with recomputed activations."""
    if step == "embed":
        return [embed_flops(config, report["rows"])]
    found = []
    for remat in (False, True):
        one = config.copy_and_resolve_references()
        one.model.remat = remat
        found += [train_flops(one, "realm", BERT_VOCABULARY)]
    return found
