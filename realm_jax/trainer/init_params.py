"""The networks that a run begins with: drawn, imported, or another run's."""

import jax
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import InputError
from realm_jax.interop.warm_start import load_networks
from realm_jax.models.modules import Modules, Parameters
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import final_parameters
from realm_jax.trainer.inputs import Inputs
from realm_jax.trainer.resume import require_pretrained, require_same_model
from realm_jax.trainer.state import stream_key


def initial_params(config: ConfigDict, inputs: Inputs) -> Parameters:
    """All networks before any training: drawn from the seed, or from `model.start`."""
    names = ("embedder", "reader", "span_head")
    modules = Modules(config.model, inputs.knowledge.vocabulary.size, names)
    drawn = jax.jit(modules.init)(stream_key(config.seed, "init"))
    alone = () if config.model.start_embedder else ("embedder",)
    started = {name: network for name, network in drawn.items() if name not in alone}
    return drawn | load_networks(config.model.start, jax.device_get(started), config.model)


def pretrained_reader(workdir: str, config: ConfigDict) -> Parameters:
    """The pre-trained reader of another run, for Table 2's mixed systems; nothing for "".

    Raises:
      InputError: no finished pre-training there.
      MismatchError: a run of another model.
    """
    if not workdir:
        return {}
    other = RunDir(workdir)
    trained = final_parameters(other, "realm")
    if trained is None or not other.config.exists():
        raise InputError(
            "no pre-trained reader",
            where=f"config.stages.qa.reader_from={workdir}",
            expected="the workdir of a run that has been pre-trained",
        )
    theirs = config_lib.from_json(other.config.read_text(), where=other.config)
    require_same_model(
        config,
        theirs,
        "the other run's reader is of another model",
        where=other.config,
        fix="pre-train both runs with the same config.model and config.lengths",
    )
    require_pretrained(other, theirs)
    return {"reader": trained[1]["reader"]}
