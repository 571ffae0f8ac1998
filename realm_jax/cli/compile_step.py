"""`realm compile`: compiles programs with the TPU compiler, on a machine without TPUs."""

import argparse
import sys
from pathlib import Path
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_flag, add_json, count, positive
from realm_jax.cli.overrides import ALL
from realm_jax.planning.chips import slice_of
from realm_jax.planning.plan import builder_chips, embedding_seconds
from realm_jax.planning.reference_reports import BERT_VOCABULARY, WIKIPEDIA, add_report
from realm_jax.planning.topology import prepare

EXAMPLE = "realm compile --topology=v5e:8x8 --config=realm_wikipedia --step=all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    parser.add_argument(
        "--topology", required=True, help="CHIP:SHAPE, as in v4:4x4x4; 2xv5e:8x8 are two slices"
    )
    parser.add_argument("--config", help="recipe name or Python file; default: the paper's sizes")
    parser.add_argument(
        "--step",
        default="train",
        help="all, or one program, such as realm/train, realm/evaluate, ict/train, embed; train "
        "is realm/train, or ict/train without stages.realm.steps",
    )
    parser.add_argument(
        "--vocabulary",
        type=positive,
        default=BERT_VOCABULARY,
        help="size of the vocabulary, in word pieces; default: BERT's %(default)s",
    )
    add_corpus_arguments(parser)
    parser.add_argument("--save", type=Path, help="file of reports; new reports are added to it")
    add_flag(
        parser,
        "--advise",
        "compile a training step with several model.remat and optimizer.accumulate_steps, and "
        "print the quickest that keeps 85 %% of the memory; takes as long as six steps",
    )
    add_json(parser)
    parser.set_defaults(overridable=ALL)


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --passages and --builder_share."""
    parser.add_argument(
        "--passages",
        type=count,
        default=WIKIPEDIA,
        help="passages of the corpus, as in 1e9; default: the paper's %(default)s",
    )
    parser.add_argument(
        "--builder_share",
        type=float,
        default=0.2,
        help="share of all chips that build the index, 0 to 1; default: %(default)s",
    )


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compiles and prints the report; exit code 1 if a check fails (memory, sharding)."""
    place = slice_of(arguments.topology)
    builders = builder_chips(place, arguments.builder_share)
    prepare()
    runtime.start_interruptible()
    from realm_jax.interop.start_config import load_config

    config = load_config(arguments.config, arguments.overrides)
    if arguments.step == "all":
        return _compile_all(arguments, config)
    name = arguments.step
    if name == "train":
        name = "realm/train" if config.stages.realm.steps else "ict/train"
    if arguments.advise:
        return _advise(arguments, name)
    from realm_jax.planning.compile_report import compile_report, report_lines

    passages = arguments.passages
    report = compile_report(config, place, name, arguments.vocabulary, passages)
    if name == "embed":
        refresh = embedding_seconds(report, passages, builders)
        report["refresh"] = {"passages": passages, "builder_chips": builders, "seconds": refresh}
    if arguments.save is not None:
        add_report(arguments.save, report)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in report_lines(report)))
    return {**report, "exit_code": 0 if all(report["checks"].values()) else 1}


def _compile_all(arguments: argparse.Namespace, config: Any) -> dict[str, Any]:
    """Compiles every program of both jobs, each in a process of its own."""
    from realm_jax.planning.compile_all import compile_all, program_lines

    report = compile_all(
        config,
        slice_of(arguments.topology),
        [
            *_flags(arguments),
            *(f"--config.{key}={value}" for key, value in arguments.overrides.items()),
        ],
        arguments.vocabulary,
        arguments.passages,
    )
    if arguments.save is not None:
        for program in report["programs"]:
            if program.get("checks"):
                add_report(arguments.save, program)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in program_lines(report)))
    return {**report, "exit_code": 0 if all(map(_holds, report["programs"])) else 1}


def _advise(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Compiles a training step with several choices, and prints the best."""
    from realm_jax.planning.advise import advice_line, advise

    report = advise(slice_of(arguments.topology), name, _flags(arguments), arguments.overrides)
    if not arguments.json:
        best = next(one for one in report["tried"] if one["config"] == report["advised"])
        sys.stdout.write(f"quickest: {advice_line(best)}\n")
    return {**report, "exit_code": 0}


def _flags(arguments: argparse.Namespace) -> list[str]:
    """Flags of a child process, without the program and config keys."""
    flags = [f"--topology={arguments.topology}", f"--vocabulary={arguments.vocabulary}"]
    flags += [f"--passages={arguments.passages}"]
    return [*flags, f"--config={arguments.config}"] if arguments.config else flags


def _holds(program: dict[str, Any]) -> bool:
    return "error" not in program and all(program["checks"].values())
