"""Opens and checks everything that a run needs, before the run writes anything.

`run` and `finetune` work with the result, and `--dry-run` prints it. Whatever stops a run at its
start therefore stops the dry run with the same error.
"""

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.artifacts.corpus_change import CorpusChange, corpus_change
from realm_jax.artifacts.run_config import check_vocabulary
from realm_jax.errors import ConfigError
from realm_jax.models.modules import Modules, Parameters
from realm_jax.monitoring.writers import check_writers
from realm_jax.parallel.sharding import check_batches, make_mesh, packing_groups
from realm_jax.storage import commit, files, follow
from realm_jax.storage.disk_space import free_bytes
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.disk_estimate import run_bytes
from realm_jax.trainer.fine_tuning import check_fine_tuning
from realm_jax.trainer.init_params import (
    load_question_networks,
    load_start_params,
    pretrained_reader,
)
from realm_jax.trainer.inputs import Inputs, open_inputs
from realm_jax.trainer.resume import (
    check_earlier_stages,
    check_run_config,
    check_steps_not_reduced,
    require_pretrained,
    started_with,
)

STAGES = ("reader", "ict", "realm", "qa")  # stages of a run, in order; the tagger is a separate run
MODULES = {  # modules that each stage trains
    "reader": ("reader", "span_head"),
    "ict": ("embedder",),
    "realm": ("embedder", "reader"),
    "qa": ("embedder", "reader", "span_head"),
}


@dataclass(frozen=True)
class PlannedStage:
    """A stage that the run trains.

    Attributes:
      name: reader, ict, realm or qa.
      steps: all its steps.
      batch: queries per step.
      done: step of its newest checkpoint.
    """

    name: str
    steps: int
    batch: int
    done: int


@dataclass(frozen=True)
class PreparedRun:
    """What a run needs, opened and checked.

    Attributes:
      run_dir: the run folder; it may not exist yet.
      config: the run's config.
      inputs: corpora, masked text and questions.
      mesh: the devices.
      groups: G, the groups in which a batch is packed.
      start_params: see `load_start_params`.
      question_networks: see `load_question_networks`; {} unless the start is exported.
      stages: the stages with steps, in order.
      num_params: parameters of each module.
      disk_bytes: approximate size of each folder of the finished run.
      free_bytes: free space of the disk; None in an object store.
      ended: whether the run folder holds a finished run.
      corpus_change: since the newest index of the run was built; None if there is none.
    """

    run_dir: RunDir
    config: ConfigDict
    inputs: Inputs
    mesh: Mesh
    groups: int
    start_params: Parameters
    question_networks: Parameters
    stages: tuple[PlannedStage, ...]
    num_params: dict[str, int]
    disk_bytes: dict[str, int]
    free_bytes: int | None
    ended: bool
    corpus_change: CorpusChange | None


def prepare(workdir: str, config: ConfigDict, stages: tuple[str, ...] = STAGES) -> PreparedRun:
    """Opens all inputs of a run and checks them against each other, the devices and the workdir.

    Writes no file. In an object store, it writes and deletes an empty file to check permissions.

    Args:
      workdir: the run folder.
      config: the run's config.
      stages: names of the stages to train; ("qa",) for the fine-tuning of a pre-trained run.

    Raises:
      RealmError: an input, the config or the run folder does not allow the run to start.
    """
    run_dir = RunDir(workdir)
    files.check_writable(run_dir.root)
    inputs, mesh = open_inputs(config, started_with(run_dir)), open_mesh(config)
    check_writers(config)
    _check_attention(config)
    _check_workdir(run_dir, config, inputs, stages)
    words = inputs.knowledge.vocabulary
    start_params = load_start_params(config, words.size, words.vocabulary)
    exports_start = config.stages.realm.publish_start and config.stages.realm.steps == 0
    if exports_start and config.model.like_start and not config.stages.ict.steps:
        _require_embedder(config, start_params.get("embedder", {}))
    question_networks = load_question_networks(config, words.size) if exports_start else {}
    num_params = _num_params(config, words.size)
    planned = _planned(run_dir, config, inputs, stages)
    trained = {stage.name: MODULES[stage.name] for stage in planned}
    return PreparedRun(
        run_dir=run_dir,
        config=config,
        inputs=inputs,
        mesh=mesh,
        groups=packing_groups(mesh, config),
        start_params=start_params,
        question_networks=question_networks,
        stages=planned,
        num_params=num_params,
        disk_bytes=run_bytes(config, len(inputs.knowledge), num_params, trained),
        free_bytes=free_bytes(workdir),
        ended=follow.ended(run_dir),
        corpus_change=corpus_change(
            run_dir, commit.latest(run_dir.published_index), inputs.knowledge
        ),
    )


def open_mesh(config: ConfigDict) -> Mesh:
    """The mesh of a run.

    Raises:
      ConfigError: the mesh does not fit the devices, or a batch does not divide over it.
    """
    mesh = make_mesh(config.mesh)
    names = [name for name in STAGES if name != "qa" or config.corpus.questions]
    batches = {
        f"stages.{name}.batch": config.stages[name].batch
        for name in names
        if config.stages[name].steps
    }
    check_batches(mesh, batches, config.optimizer.accumulate_steps)
    packing_groups(mesh, config)
    return mesh


def _require_embedder(config: ConfigDict, started: Parameters) -> None:
    """Raises a ConfigError if a run would publish an embedder with random layers as it is.

    Args:
      config: of a run whose embedder is that of `model.start` and is not trained.
      started: what the weights have of it; see `load_start_params`.
    """
    drawn = sorted(
        name
        for name, layer in started.items()
        if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(layer))
    )
    drawn = [name for name in drawn if name not in ("temperature_scale", "null_bias")]
    if started and not drawn:
        return
    start, width = config.model.start, config.model.hidden
    raise ConfigError(
        "the weights have no embedder, and no stage trains one",
        where=f"config.model.start={start}",
        expected="a sentence-transformers folder with modules.json, or weights with an embedder",
        found=f"{', '.join(drawn) or 'the embedder'} would be random" if start else "no weights",
        fix="for a BERT whose vectors are means of its last layer: --config.model.pooling=mean "
        f"--config.model.projection=none --config.model.embedding={width} "
        "--config.model.passage_row=single --config.model.normalise=true"
        if start
        else "--config.model.start=FOLDER, or ORG/NAME of a model on the Hub",
    )


def _check_attention(config: ConfigDict) -> None:
    reader = config.stages.reader
    if config.model.attention == "cudnn" and reader.steps and reader.hidden_mask_share:
        raise ConfigError(
            "cuDNN's attention cannot hide single tokens",
            where="config.stages.reader.hidden_mask_share",
            expected="0 for model.attention=cudnn",
            found=reader.hidden_mask_share,
        )


def _check_workdir(
    run_dir: RunDir, config: ConfigDict, inputs: Inputs, stages: tuple[str, ...]
) -> None:
    check_run_config(run_dir, config)
    check_vocabulary(run_dir, inputs.knowledge)
    if stages == ("qa",):
        _require_steps(config)
        require_pretrained(run_dir, config)
        pretrained_reader(config.stages.qa.reader_from, config)
    else:
        check_earlier_stages(run_dir, config)
    check_steps_not_reduced(run_dir, config)
    if inputs.questions and config.stages.qa.steps:
        check_fine_tuning(run_dir, config, inputs.questions)


def _require_steps(config: ConfigDict) -> None:
    """Raises a ConfigError if the config of a run, as that of recipe as_is, has no fine-tuning."""
    if not config.stages.qa.steps:
        raise ConfigError(
            "fine-tuning has no steps",
            where="config.stages.qa.steps",
            expected="at least 1",
            found=0,
            fix="add --config.stages.qa.steps=N, for example 200",
        )


def _num_params(config: ConfigDict, vocabulary_size: int) -> dict[str, int]:
    shapes: dict[str, Any] = Modules(config.model, vocabulary_size, MODULES["qa"]).shapes
    return {name: sum(leaf.size for leaf in jax.tree.leaves(tree)) for name, tree in shapes.items()}


def _planned(
    run_dir: RunDir, config: ConfigDict, inputs: Inputs, stages: tuple[str, ...]
) -> tuple[PlannedStage, ...]:
    names = [name for name in stages if name != "qa" or inputs.questions]
    return tuple(
        PlannedStage(
            name,
            config.stages[name].steps,
            config.stages[name].batch,
            commit.latest(run_dir.checkpoints(name)) or 0,
        )
        for name in names
        if config.stages[name].steps
    )
