"""The params of a run before its first step: drawn from the seed, imported, or of another run."""

import itertools
from collections.abc import Sequence

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.artifacts.run_config import newest_config
from realm_jax.errors import InputError
from realm_jax.interop.warm_start import load_for_questions, load_networks
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import param_shardings, shard_arrays
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.checkpoint import final_params
from realm_jax.trainer.resume import require_pretrained, require_same_model
from realm_jax.trainer.state import stream_key

_MODULES = ("embedder", "reader", "span_head")


def load_start_params(
    config: ConfigDict, vocabulary_size: int, pieces: Sequence[str] | None = None
) -> Parameters:
    """Params that `config.model.start` provides, by module.

    Args:
      config: of the run.
      vocabulary_size: V.
      pieces: the vocabulary of the corpus, which must be that of the weights; None: not compared.

    Leaves are numpy arrays, or shapes for arrays that the weights do not contain. {} without a
    `model.start`.

    Raises:
      InputError: no such weights.
      MismatchError: weights of another size, vocabulary or activation.
    """
    shapes = run_modules(config, vocabulary_size).shapes
    names = _MODULES if config.model.start_embedder else ("reader", "span_head")
    wanted = {name: shapes[name] for name in names}
    return load_networks(config.model.start, wanted, config.model, pieces)


def load_question_networks(config: ConfigDict, vocabulary_size: int) -> Parameters:
    """Networks that answer questions, if `config.model.start` has a span head; else {}.

    Returns:
      Params of `question_embedder`, `question_reader` and `span_head`, on the host.
    """
    shapes = run_modules(config, vocabulary_size).shapes
    return load_for_questions(config.model.start, shapes, config.model)


def initial_params(
    config: ConfigDict, modules: Modules, start_params: Parameters, mesh: Mesh
) -> Parameters:
    """Params before any training, sharded over the mesh.

    Args:
      config: of the run.
      modules: the modules.
      start_params: by module; leaves are host arrays, or shapes for arrays to draw. Modules that
        are not in it are drawn.
      mesh: the devices; each draws only its shards.
    """
    shardings = param_shardings(mesh, modules.axes, modules.shapes)
    leaves, structure = jax.tree.flatten(modules.shapes | start_params)
    is_drawn = [isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves]
    drawn = iter(init_program(modules, config.seed, shardings, is_drawn)())
    placed = [
        next(drawn) if to_draw else shard_arrays(leaf, sharding)
        for leaf, sharding, to_draw in zip(
            leaves, jax.tree.leaves(shardings), is_drawn, strict=True
        )
    ]
    return jax.tree.unflatten(structure, placed)


def init_program(
    modules: Modules, seed: int, shardings: Parameters, is_drawn: list[bool]
) -> Program:
    """The program () -> the drawn params, as a list of leaves in tree order.

    Args:
      modules: the modules.
      seed: the run's seed.
      shardings: of all params.
      is_drawn: for each leaf, whether the program returns it.
    """

    def draw() -> list[jax.Array]:
        leaves = jax.tree.leaves(modules.init(stream_key(seed, "init")))
        return list(itertools.compress(leaves, is_drawn))

    outputs = list(itertools.compress(jax.tree.leaves(shardings), is_drawn))
    return Program("init", draw, out_shardings=outputs)


def run_modules(config: ConfigDict, vocabulary_size: int) -> Modules:
    """The modules that the stages of a run train."""
    return Modules(config.model, vocabulary_size, _MODULES)


def pretrained_reader(workdir: str, config: ConfigDict) -> Parameters:
    """The pre-trained reader of another run, as {"reader": params}; {} for an empty `workdir`.

    The two-by-two ablation of REALM's table 2 combines retriever and reader of different runs.

    Raises:
      InputError: that run has not finished pre-training.
      MismatchError: that run's model differs.
    """
    if not workdir:
        return {}
    theirs, other = require_reader_run(workdir, config), RunDir(workdir)
    trained = final_params(other, "realm")
    if trained is None:
        raise _no_reader(workdir)
    require_pretrained(other, theirs)
    return {"reader": trained[1]["reader"]}


def require_reader_run(workdir: str, config: ConfigDict) -> ConfigDict:
    """The config of the run whose reader fine-tuning starts from; it may still be training.

    Raises:
      InputError: there is no run.
      MismatchError: its model differs.
    """
    other = RunDir(workdir)
    theirs = newest_config(other)
    if theirs is None:
        raise _no_reader(workdir)
    require_same_model(
        config,
        theirs,
        "the other run's reader has another model config",
        where=other.config,
        fix="pre-train both runs with the same config.model and config.lengths",
    )
    return theirs


def _no_reader(workdir: str) -> InputError:
    return InputError(
        "no pre-trained reader",
        where=f"config.stages.qa.reader_from={workdir}",
        expected="the workdir of a pre-trained run",
    )
