"""Stored compile reports of the paper's sizes, for one slice of each kind of chip."""

import json
import shlex
from pathlib import Path
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from realm_jax.data.embedder_rows import indexed_length
from realm_jax.errors import InputError, MismatchError
from realm_jax.planning.chips import Slice, slice_of
from realm_jax.planning.flops import embed_flops, evaluation_flops, train_flops
from realm_jax.storage import files

# Reports of the config experiments/realm_wikipedia.py
REFERENCE_REPORTS = Path(__file__).with_name("realm_wikipedia.json")
BERT_VOCABULARY = 30_522  # size of the vocabulary of BERT-base uncased
WIKIPEDIA = 13_353_718  # passages of the paper's knowledge corpus
PROGRAMS = ("realm/train", "realm/evaluate", "embed")  # that a plan needs
_TOLERANCE = 0.05  # of the FLOPs, because a report does not contain its vocabulary size


def add_report(path: Path, report: dict[str, Any]) -> None:
    """Adds a report to a file; replaces an older one of the same slice and program."""
    kept = read_reports(path) if path.exists() else []
    key = (report["topology"], report["name"])
    kept = [one for one in kept if (one["topology"], one["name"]) != key]
    kept = sorted([*kept, report], key=lambda one: (one["topology"], one["name"]))
    files.write_bytes(epath.Path(path), f"{json.dumps(kept, indent=1)}\n".encode())


def read_reports(path: Path) -> list[dict[str, Any]]:
    """Reads a file written by `realm compile --save`.

    Raises:
      InputError: the file contains no reports.
    """
    try:
        found = json.loads(path.read_text())
        known = all({"topology", "name"} <= one.keys() for one in found)
    except (OSError, ValueError, AttributeError, TypeError):
        known = False
    if not known:
        raise InputError(
            "no compile reports in this file",
            where=path,
            expected="a file written by `realm compile --save`",
            fix=f"realm compile --topology=NAME --config=FILE --step=all "
            f"--save={shlex.quote(str(path))}",
        )
    return found


def reports_for(target: Slice, path: Path = REFERENCE_REPORTS) -> dict[str, dict[str, Any]]:
    """Chooses a report per program: of this slice if there is one, else of the same chips.

    Of these, a report of the same number of slices is preferred.

    Raises:
      InputError: a program has no report for these chips.
    """
    kept = [one for one in read_reports(path) if slice_of(one["topology"]).kind == target.kind]
    chosen = {}
    for name in PROGRAMS:
        fitting = [one for one in kept if one["name"] == name]
        fitting.sort(key=lambda one: _distance(slice_of(one["topology"]), target))
        if not fitting:
            raise InputError(
                f"no compile report of {name} for {target.kind}",
                where=path,
                fix=f"realm compile --topology={target.name} --step={name} "
                f"--save={shlex.quote(str(path))} …, then realm plan "
                f"--reports={shlex.quote(str(path))}",
            )
        chosen[name] = fitting[0]
    return chosen


def _distance(one: Slice, target: Slice) -> tuple[bool, bool]:
    return one.name != target.name, one.slices != target.slices


def check_sizes(reports: dict[str, dict[str, Any]], config: ConfigDict, path: Path) -> None:
    """Checks that reports and config agree in the FLOPs of each program.

    Different FLOPs mean another model, batch or lengths. `model.remat` may differ.

    Args:
      reports: result of `reports_for`.
      config: of the planned run.
      path: file of the reports, for the error message.

    Raises:
      MismatchError: the FLOPs of a program differ.
    """
    for name, report in reports.items():
        reported = report["flops_per_chip"] * report["chips"] / report["flops_analytic_ratio"]
        expected = _expected_flops(name, report, config)
        if all(abs(reported / flops - 1) > _TOLERANCE for flops in expected):
            raise MismatchError(
                f"the compile report of {name} has other sizes than the config",
                where=path,
                expected=f"{min(expected):.3g} FLOPs per call",
                found=f"{reported:.3g}",
                fix=f"realm compile --topology={report['topology']} --config=FILE --step={name} "
                "--save=REPORTS, then realm plan --config=FILE --reports=REPORTS",
            )


def _expected_flops(name: str, report: dict[str, Any], config: ConfigDict) -> list[float]:
    """FLOPs of a program of the config, for each choice of recomputed activations."""
    if name == "embed":
        return [embed_flops(config, report["rows"], indexed_length(config))]
    if name == "realm/evaluate":
        return [evaluation_flops(config, "realm", BERT_VOCABULARY)]
    found = []
    for remat in ("none", "attention", "full"):
        one = config.copy_and_resolve_references()
        one.model.remat = remat
        found += [train_flops(one, "realm", BERT_VOCABULARY)]
    return found
