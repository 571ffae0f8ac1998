"""Measures a finished run: recall before and after training, utility, staleness and time."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax.artifacts.export import read_export
from realm_jax.data.question_files import Question
from realm_jax.errors import InputError
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel.sharding import one_device_mesh
from realm_jax.report.baselines import compare_with_baselines
from realm_jax.report.run_data import RunData
from realm_jax.storage import commit
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.init_params import initial_params, load_start_params
from realm_jax.trainer.inputs import Inputs, open_inputs
from realm_jax.trainer.recall import EmbeddedCorpus
from realm_jax.trainer.swap_log import staleness

log = logging.getLogger(__name__)


def measure(run: RunData, questions: Sequence[Question] = ()) -> dict[str, Any]:
    """Computes the content of `report.json`, from held-out text and from the logs.

    Args:
      run: with an export.
      questions: for the table of baselines.

    Returns:
      `export_step`; `index_update`, if there is one; `index_swaps`; `staleness_steps` (mean, max);
      `recall_at_K` untrained, after ICT and after REALM; `retrieval_utility` and its curve, in
      nats per word piece; `seconds` by stage; `baselines` (see `compare_with_baselines`). Recall is
      omitted if no sentence has a known evidence passage. Recall and `baselines` are omitted if the
      corpus has more passages than config.report.max_passages; `baselines` is None if BM25 cannot
      index this corpus.

    Raises:
      RealmError: see `open_inputs`. With questions, also if BM25 cannot index this corpus.
    """
    began = time.monotonic()
    config = run.config
    metrics: dict[str, Any] = {"export_step": run.export.get("step")}
    update = commit.latest(run.folder.index_updates)
    if update is not None:
        metrics["index_update"] = update
    if run.swaps:
        metrics["index_swaps"] = len(run.swaps) - 1
        metrics["staleness_steps"] = staleness(run.swaps, run.trained_steps("realm"))
    inputs = open_inputs(config)
    if inputs.knowledge.passages() > config.report.max_passages:
        log.info("retrieval is not measured: more passages than config.report.max_passages")
    else:
        metrics |= _retrieval(run, inputs, questions)
    curve = run.values("realm", "held_out_retrieval_utility")
    if curve:
        metrics["retrieval_utility"] = curve[-1][1]
        metrics["retrieval_utility_curve"] = [(int(step), value) for step, value in curve]
    seconds = {**run.stage_seconds, "measure": time.monotonic() - began}
    metrics["seconds"] = {part: round(value, 1) for part, value in seconds.items()}
    return metrics


def _retrieval(run: RunData, inputs: Inputs, questions: Sequence[Question]) -> dict[str, Any]:
    """Recall of the untrained, the ICT and the REALM embedder, and the table of baselines."""
    config, networks = run.config, read_export(run.folder).networks
    embedders = {"untrained": _untrained(config, inputs)}
    after_ict = final_params(run.folder, "ict")
    if after_ict is not None:
        embedders["ict"] = after_ict[1]["embedder"]
    embedders["realm"] = networks["embedder"]
    corpora = {
        name: EmbeddedCorpus(config, inputs.knowledge, parameters)
        for name, parameters in embedders.items()
    }
    text, k = inputs.held_out.first(config.evaluation.queries), config.evaluation.recall_k
    found: dict[str, Any] = {}
    if (text.evidence >= 0).any():
        found[f"recall_at_{k}"] = {
            name: corpus.masked_recall(text, k) for name, corpus in corpora.items()
        }
    else:
        log.info("recall is not measured: no held-out sentence has a known evidence passage")
    start, trained = corpora["untrained"], corpora["realm"]
    asked = networks.get("question_embedder")
    try:
        compared = compare_with_baselines(config, inputs, start, trained, questions, asked)
    except InputError as error:  # BM25 writes its index into the folder of the corpus
        if questions:  # the comparison was asked for
            raise
        log.warning("the report has no comparison with BM25:\n%s", error)
        compared = None  # the next report tries again
    found["baselines"] = compared
    return found


def _untrained(config: ConfigDict, inputs: Inputs) -> Parameters:
    size = inputs.knowledge.vocabulary.size
    modules = Modules(config.model, size, ("embedder",))
    start = {k: v for k, v in load_start_params(config, size).items() if k == "embedder"}
    return jax.device_get(initial_params(config, modules, start, one_device_mesh())["embedder"])
