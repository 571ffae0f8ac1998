"""Writes `report.json`, `report.html` and the model card of a run into its folder."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax.artifacts.run_config import NO_PATHS, Paths
from realm_jax.data.question_files import Question
from realm_jax.inference.answerer import Answerer
from realm_jax.report import baselines, curves, sections
from realm_jax.report.card import CARD, model_card
from realm_jax.report.examples import examples_section
from realm_jax.report.html import Element, element, page
from realm_jax.report.measure import measure
from realm_jax.report.predictions import predict, utility_by_rank
from realm_jax.report.run_data import RunData, read_run
from realm_jax.storage import files
from realm_jax.trainer.inputs import open_inputs, trains_on_masks

PAGE = "report.html"
_STYLE = Path(__file__).with_name("style.css")

log = logging.getLogger(__name__)


def write_report(
    workdir: str, questions: Sequence[Question] = (), paths: Paths = NO_PATHS
) -> epath.Path:
    """Measures the newest export unless it was measured before, and writes all three files.

    A run without an export gets a page with its curves only, and no model card.

    Args:
      workdir: the run folder.
      questions: the table of baselines has a column for them; with questions, the export is
        measured again; other values that were measured, such as exact match, are kept.
      paths: see `run_config`.

    Returns:
      The path of the page.

    Raises:
      InputError: the folder holds no run, or its corpora are missing.
      DamageError: a file is damaged; names it.
    """
    run = read_run(workdir, paths)
    if run.export and (questions or not run.measured):
        run = replace(run, measured=run.measured | measure(run, questions))
        content = json.dumps(run.measured, indent=1)
        files.write_bytes(run.folder.report, content.encode())
    path = run.folder.root / PAGE
    files.write_bytes(
        path, page(f"{run.name}: REALM report", _STYLE.read_text(), _body(run, paths))
    )
    if run.export:
        files.write_bytes(run.folder.export / CARD, model_card(run).encode())
    log.info("report: %s", path)
    return path


def _body(run: RunData, paths: Paths) -> list[Element | None]:
    held_out = _held_out(run, paths) if run.export else {}
    bars = [curves.recall_chart(run), held_out.get("by_rank")]
    bars = [chart for chart in bars if chart is not None]
    return [
        element("h1", run.name),
        element("p", _subtitle(run), class_="quiet"),
        sections.tiles_section(run),
        *_part("Was training worth it?", baselines.baselines_section(run)),
        *_part(
            "Did the model learn to retrieve?",
            [element("div", bars, class_="charts")] if bars else [],
        ),
        *_part("Curves", [curves.charts_section(run)]),
        *_part("Held-out examples with and without retrieval", held_out.get("examples", [])),
        *_part("Time", sections.seconds_section(run)),
        *_part("Config", sections.config_section(run)),
        *_part("Versions", [sections.versions_section()]),
    ]


def _part(title: str, content: list[Any]) -> list[Element]:
    return [element("section", element("h2", title), content)] if content else []


def _subtitle(run: RunData) -> str:
    passages, export = run.index.get("passages"), run.export
    if not export:
        return "This run has no export yet. The page shows its curves only."
    over = "" if passages is None else f" over {passages:,} passages"
    return f"Export of step {export['step']}, index of step {export['index_step']}{over}."


def _held_out(run: RunData, paths: Paths) -> dict[str, Any]:
    """Runs the export on held-out sentences: a chart by rank, and examples."""
    if not trains_on_masks(run.config):
        return {}  # the reader was not trained on masked text
    answerer = Answerer.open(str(run.folder.workdir), paths)
    text = open_inputs(run.config).held_out.first(run.config.evaluation.queries)
    if not len(text.source):
        return {}
    predictions = predict(answerer, text)
    count = run.config.report.examples
    return {
        "by_rank": curves.rank_chart(utility_by_rank(text, predictions)),
        "examples": examples_section(answerer, text, predictions, count) if count else [],
    }
