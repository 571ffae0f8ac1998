"""`realm ask`: answers a question, or fills the [MASK] of a sentence, with a trained run."""

import argparse
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_retriever, fusion_of, positive
from realm_jax.cli.overrides import add_workdir

EXAMPLE = 'realm ask --workdir=runs/demo "What do people call Norway in Icelandic?"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_workdir(parser)
    parser.add_argument(
        "--k", type=positive, help="passages to read; default: stages.qa.reader_passages"
    )
    add_retriever(parser)
    parser.add_argument("--answer", help="with [MASK]: also print the probability of this answer")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    parser.add_argument("question", help="a question, or a sentence with one [MASK]")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints the answer and its evidence."""
    runtime.start_interruptible()
    from realm_jax.inference.answerer import Answer, Answerer
    from realm_jax.inference.fill_mask import MASK, Filling, MaskFiller

    answerer = Answerer.open(arguments.workdir, arguments.overrides)
    answerer = answerer.by(arguments.retriever, fusion_of(arguments))
    result: Answer | Filling
    if MASK in arguments.question:
        result = MaskFiller(answerer).fill(arguments.question, arguments.answer)
    else:
        result = answerer.ask(arguments.question, arguments.k)
    if not arguments.json:
        sys.stdout.write(f"{result}\n")
    return result.as_dict()
