"""Measures a finished run: recall before and after training, utility, staleness and time."""

import logging
import math
import time
from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax.artifacts.export import read_export
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel.sharding import one_device_mesh
from realm_jax.report.run_data import RunData
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.init_params import initial_params, load_start_params
from realm_jax.trainer.inputs import Inputs, open_inputs
from realm_jax.trainer.recall import masked_recall
from realm_jax.trainer.swap_log import staleness

log = logging.getLogger(__name__)


def measure(run: RunData) -> dict[str, Any]:
    """Computes the content of `report.json`, from held-out text and from the logs.

    Returns:
      `export_step`; `index_swaps`; `staleness_steps` (mean, max); `recall_at_K` untrained, after
      ICT and after REALM; `retrieval_utility` and its curve, in nats per word piece; `seconds` by
      stage. Recall is omitted if no sentence has a known evidence passage, or if the corpus has
      more passages than config.report.max_passages.

    Raises:
      RealmError: see `open_inputs`.
    """
    began = time.monotonic()
    config = run.config
    metrics: dict[str, Any] = {"export_step": run.export.get("step")}
    if run.swaps:
        metrics["index_swaps"] = len(run.swaps) - 1
        metrics["staleness_steps"] = staleness(run.swaps, config.stages.realm.steps)
    recalls = _recalls(run, open_inputs(config))
    if recalls:
        metrics[f"recall_at_{config.evaluation.recall_k}"] = recalls
    curve = run.values("realm", "held_out_retrieval_utility")
    if curve:
        metrics["retrieval_utility"] = curve[-1][1]
        metrics["retrieval_utility_curve"] = [(int(step), value) for step, value in curve]
    seconds = {**run.stage_seconds, "measure": time.monotonic() - began}
    metrics["seconds"] = {part: round(value, 1) for part, value in seconds.items()}
    return metrics


def _recalls(run: RunData, inputs: Inputs) -> dict[str, float]:
    """Recall of masked sentences with the untrained, the ICT and the REALM embedder."""
    config = run.config
    text = inputs.held_out.first(config.evaluation.queries)
    if not (text.evidence >= 0).any():
        log.info("recall is not measured: no held-out sentence has a known evidence passage")
        return {}
    if len(inputs.knowledge) > config.report.max_passages:
        log.info("recall is not measured: more passages than config.report.max_passages")
        return {}
    embedders = {"untrained": _untrained(config, inputs)}
    after_ict = final_params(run.folder, "ict")
    if after_ict is not None:
        embedders["ict"] = after_ict[1]["embedder"]
    embedders["realm"] = read_export(run.folder).networks["embedder"]
    recalls = {
        name: masked_recall(config, inputs, text, parameters)
        for name, parameters in embedders.items()
    }
    return {name: recall for name, recall in recalls.items() if math.isfinite(recall)}


def _untrained(config: ConfigDict, inputs: Inputs) -> Parameters:
    size = inputs.knowledge.vocabulary.size
    modules = Modules(config.model, size, ("embedder",))
    start = {k: v for k, v in load_start_params(config, size).items() if k == "embedder"}
    return jax.device_get(initial_params(config, modules, start, one_device_mesh())["embedder"])
