"""Lowers every program of both jobs for devices that this machine need not have.

States and batches are abstract: shape, dtype and sharding only. Stages, optimizer, programs and
shardings are those of a run. A test compares `ENTRIES` with the names in the source code.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jax.sharding import Mesh
from ml_collections import ConfigDict

from realm_jax.errors import InputError
from realm_jax.planning import other_programs, stage_programs
from realm_jax.planning.lowered import LoweredProgram, Target

TRAINER, BUILDER = "trainer", "builder"


@dataclass(frozen=True)
class Entry:
    """A program in the list of `realm compile --step=all`.

    Attributes:
      job: the job that runs it.
      lower: lowers it for a target.
      stage: the stage that runs it; "" if all do.
      program: name in the source code, if it is another one: the same program with other shapes.
      on_one_machine: whether each machine of the job runs it by itself, on its own devices.
    """

    job: str
    lower: Callable[[Target], LoweredProgram]
    stage: str = ""
    program: str = ""
    on_one_machine: bool = False


def _train(stage: str) -> Entry:
    return Entry(TRAINER, lambda target: stage_programs.train(target, stage), stage)


def _evaluate(stage: str) -> Entry:
    return Entry(TRAINER, lambda target: stage_programs.evaluate(target, stage), stage)


def _on_each_host(lower: Callable[[Target], LoweredProgram], stage: str = "") -> Entry:
    return Entry(TRAINER, lower, stage, "embed", on_one_machine=True)


ENTRIES = {
    "connect": Entry(TRAINER, stage_programs.connect),
    "init": Entry(TRAINER, stage_programs.init),
    "state": Entry(TRAINER, stage_programs.state),
    "restore": Entry(TRAINER, stage_programs.restore),
    "reader/train": _train("reader"),
    "ict/train": _train("ict"),
    "ict/evaluate": _evaluate("ict"),
    "realm/train": _train("realm"),
    "realm/evaluate": _evaluate("realm"),
    "qa/train": _train("qa"),
    "gather": Entry(TRAINER, stage_programs.gather),
    "embed/queries": _on_each_host(other_programs.embed_queries),
    "embed/rerank": _on_each_host(other_programs.embed_rerank, "realm"),
    "search": Entry(TRAINER, other_programs.search, "realm"),
    "search/questions": Entry(TRAINER, other_programs.search_questions, "qa", "search/vectors"),
    "embed": Entry(BUILDER, other_programs.embed, on_one_machine=True),
    "search/probes": Entry(
        BUILDER, other_programs.search_probes, program="search/vectors", on_one_machine=True
    ),
}


def names(config: ConfigDict) -> list[str]:
    """The programs of all stages that have steps in this config.

    Re-ranking and search on the mesh are always listed, so that the keys `retrieval.rerank` and
    `search.kind` can be changed without compiling again.
    """
    return [
        name
        for name, entry in ENTRIES.items()
        if not entry.stage or config.stages[entry.stage].steps
    ]


def lower(
    name: str,
    config: ConfigDict,
    trainer: Mesh,
    machine: Mesh,
    vocabulary: int,
    passages: int,
) -> LoweredProgram:
    """Lowers one program.

    Args:
      name: one of `names(config)`.
      config: of the run; its corpora are not opened.
      trainer: devices of the trainer.
      machine: devices of one machine, of either job.
      vocabulary: V, size of the vocabulary.
      passages: N, size of the knowledge corpus.

    Raises:
      InputError: the config has no such program.
      ConfigError: the mesh does not divide a batch.
    """
    if name not in names(config):
        raise InputError(
            "no such program in this config",
            where="--step",
            expected=", ".join([*names(config), "all"]),
            found=name,
            fix="choose one of these, or give its stage more than 0 steps",
        )
    entry = ENTRIES[name]
    mesh = machine if entry.on_one_machine else trainer
    lowered = entry.lower(Target(config, mesh, vocabulary, passages))
    return lowered._replace(name=name, job=entry.job)
