"""What is measured once a run is finished: did it learn to retrieve?"""

import logging
import math
import time
from typing import Any

import jax

from realm_jax.artifacts.export import read_export
from realm_jax.report.run_data import FinishedRun
from realm_jax.trainer.checkpoint import final_parameters
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.inputs import Inputs, open_inputs
from realm_jax.trainer.recall import masked_recall
from realm_jax.trainer.swap_log import staleness

log = logging.getLogger(__name__)


def measure(finished: FinishedRun) -> dict[str, Any]:
    """Figures on held-out text, beside those that the logs hold.

    Returns:
      `export_step`; `index_swaps`; `staleness_steps` (mean, max); `recall_at_K` untrained, after
      ICT and after REALM; `retrieval_utility` and its curve, in nats per piece; `seconds` by stage.
      What cannot be measured is left out: recall where no sentence's evidence is known, or the
      corpus has more passages than config.report.most_passages.

    Raises:
      RealmError: see `open_inputs`.
    """
    began = time.monotonic()
    config = finished.config
    figures: dict[str, Any] = {"export_step": finished.export.get("step")}
    if finished.swaps:
        figures["index_swaps"] = len(finished.swaps) - 1
        figures["staleness_steps"] = staleness(finished.swaps, config.stages.realm.steps)
    recalls = _recalls(finished, open_inputs(config))
    if recalls:
        figures[f"recall_at_{config.evaluation.neighbours}"] = recalls
    curve = finished.course("realm", "held_out_retrieval_utility")
    if curve:
        figures["retrieval_utility"] = curve[-1][1]
        figures["retrieval_utility_curve"] = [(int(step), value) for step, value in curve]
    seconds = {**finished.stage_seconds, "measure": time.monotonic() - began}
    figures["seconds"] = {part: round(value, 1) for part, value in seconds.items()}
    return figures


def _recalls(finished: FinishedRun, inputs: Inputs) -> dict[str, float]:
    """Recall of masked sentences with the embedder at each point of its way, in order."""
    config = finished.config
    text = inputs.held_out.first(config.evaluation.queries)
    if not (text.evidence >= 0).any():
        log.info("recall is not measured: no held-out sentence has known evidence")
        return {}
    if len(inputs.knowledge) > config.report.most_passages:
        log.info("recall is not measured: more passages than config.report.most_passages")
        return {}
    embedders = {"untrained": jax.device_get(initial_params(config, inputs)["embedder"])}
    warmed_up = final_parameters(finished.folder, "ict")
    if warmed_up is not None:
        embedders["ict"] = warmed_up[1]["embedder"]
    embedders["realm"] = read_export(finished.folder).networks["embedder"]
    recalls = {
        name: masked_recall(config, inputs, text, parameters)
        for name, parameters in embedders.items()
    }
    return {name: recall for name, recall in recalls.items() if math.isfinite(recall)}
