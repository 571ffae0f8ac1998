"""The params of a run before its first step: drawn from the seed, imported, or of another run."""

from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import InputError
from realm_jax.interop.warm_start import load_networks
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel.program import Program
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.inputs import Inputs
from realm_jax.trainer.resume import require_pretrained, require_same_model
from realm_jax.trainer.state import stream_key

_MODULES = ("embedder", "reader", "span_head")


def initial_params(config: ConfigDict, inputs: Inputs) -> Parameters:
    """Params of embedder, reader and span head before any training, as numpy arrays."""
    size = inputs.knowledge.vocabulary.size
    return draw_missing(config, size, load_start_params(config, size))


def load_start_params(config: ConfigDict, vocabulary_size: int) -> Parameters:
    """Params that `config.model.start` provides, by module.

    Leaves are numpy arrays, or shapes for arrays that the weights do not contain. {} without a
    `model.start`.

    Raises:
      InputError: no such weights.
      MismatchError: weights of another size, vocabulary or activation.
    """
    shapes = Modules(config.model, vocabulary_size, _MODULES).shapes
    names = _MODULES if config.model.start_embedder else ("reader", "span_head")
    wanted = {name: shapes[name] for name in names}
    return load_networks(config.model.start, wanted, config.model)


def draw_missing(config: ConfigDict, vocabulary_size: int, start_params: Parameters) -> Parameters:
    """All params: those of `start_params`, and random ones for everything it does not contain."""
    modules = Modules(config.model, vocabulary_size, _MODULES)
    drawn = jax.device_get(Program("init/draw", modules.init)(stream_key(config.seed, "init")))

    def choose(drawn: Any, start: Any) -> Any:
        return drawn if isinstance(start, jax.ShapeDtypeStruct) else start

    return drawn | {
        name: jax.tree.map(choose, drawn[name], started) for name, started in start_params.items()
    }


def pretrained_reader(workdir: str, config: ConfigDict) -> Parameters:
    """The pre-trained reader of another run, as {"reader": params}; {} for an empty `workdir`.

    The two-by-two ablation of REALM's table 2 combines retriever and reader of different runs.

    Raises:
      InputError: that run has not finished pre-training.
      MismatchError: that run's model differs.
    """
    if not workdir:
        return {}
    other = RunDir(workdir)
    trained = final_params(other, "realm")
    if trained is None or not other.config.exists():
        raise InputError(
            "no pre-trained reader",
            where=f"config.stages.qa.reader_from={workdir}",
            expected="the workdir of a pre-trained run",
        )
    theirs = config_lib.from_json(other.config.read_text(), where=other.config)
    require_same_model(
        config,
        theirs,
        "the other run's reader has another model config",
        where=other.config,
        fix="pre-train both runs with the same config.model and config.lengths",
    )
    require_pretrained(other, theirs)
    return {"reader": trained[1]["reader"]}
