"""`report.html` and the model card of a run, written into its folder."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from etils import epath

from realm_jax.inference.answerer import Answerer
from realm_jax.report import curves, sections
from realm_jax.report.card import CARD, model_card
from realm_jax.report.examples import examples_section
from realm_jax.report.html import Element, element, page
from realm_jax.report.measure import measure
from realm_jax.report.predictions import examine, utility_by_rank
from realm_jax.report.run_data import FinishedRun, read_run
from realm_jax.storage import files
from realm_jax.trainer.inputs import open_inputs

PAGE = "report.html"
_STYLE = Path(__file__).with_name("style.css")

log = logging.getLogger(__name__)


def write_report(workdir: str) -> epath.Path:
    """Measures what was not measured yet, and writes report.json, report.html and the model card.

    A run that has exported nothing yet gets a page of its curves alone, and no card.

    Returns:
      The path of the page.

    Raises:
      InputError: no run is there, or its corpora are not.
      DamageError: names the file.
    """
    finished = read_run(workdir)
    if finished.export and not finished.measured:
        finished = replace(finished, measured=measure(finished))
        content = json.dumps(finished.measured, indent=1)
        files.write_bytes(finished.folder.report, content.encode())
    path = finished.folder.root / PAGE
    files.write_bytes(
        path, page(f"{finished.name}: REALM report", _STYLE.read_text(), _body(finished))
    )
    if finished.export:
        files.write_bytes(finished.folder.export / CARD, model_card(finished).encode())
    log.info("report: %s", path)
    return path


def _body(finished: FinishedRun) -> list[Element | None]:
    looked_at = _held_out(finished) if finished.export else {}
    bars = [curves.recall_chart(finished), looked_at.get("by_rank")]
    bars = [chart for chart in bars if chart is not None]
    return [
        element("h1", finished.name),
        element("p", _subtitle(finished), class_="quiet"),
        sections.tiles(finished),
        *_part("Was retrieval learnt?", [element("div", bars, class_="charts")] if bars else []),
        *_part("Curves", [curves.charts_section(finished)]),
        *_part("Held-out examples, with retrieval and without", looked_at.get("examples", [])),
        *_part("Where the time went", sections.seconds_section(finished)),
        *_part("Config", sections.config_section(finished)),
        *_part("Versions", [sections.versions_section()]),
    ]


def _part(title: str, content: list[Any]) -> list[Element]:
    return [element("section", element("h2", title), content)] if content else []


def _subtitle(finished: FinishedRun) -> str:
    passages, export = finished.index.get("passages"), finished.export
    if not export:
        return "This run has exported nothing yet: only its curves are here."
    over = "" if passages is None else f" over {passages:,} passages"
    return f"Export of step {export['step']}, with the index of step {export['index_step']}{over}."


def _held_out(finished: FinishedRun) -> dict[str, Any]:
    """What the export does with held-out sentences."""
    answerer = Answerer.open(str(finished.folder.workdir))
    held_out = open_inputs(finished.config).held_out
    text = held_out.first(finished.config.evaluation.queries)
    seen = examine(answerer, text)
    count = finished.config.report.examples
    return {
        "by_rank": curves.rank_chart(utility_by_rank(text, seen)),
        "examples": examples_section(answerer, text, seen, count) if count else [],
    }
