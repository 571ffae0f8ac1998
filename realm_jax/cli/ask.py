"""`realm ask`: answers a question, or fills the [MASK] of a sentence, with a trained run."""

import argparse
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import add_json, add_retriever, fusion_of, positive
from realm_jax.cli.overrides import add_workdir
from realm_jax.cli.words import text
from realm_jax.errors import UsageError

EXAMPLE = 'realm ask --workdir=runs/demo "What do people call Norway in Icelandic?"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_workdir(parser)
    parser.add_argument(
        "--k", type=positive, help="passages to read; default: stages.qa.reader_passages"
    )
    add_retriever(parser)
    parser.add_argument(
        "--answer", type=text, help="with [MASK]: also print the probability of this answer"
    )
    add_json(parser)
    parser.add_argument("question", type=text, help="a question, or a sentence with one [MASK]")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints the answer and its evidence.

    Raises:
      UsageError: a flag of questions with a [MASK], or the other way round.
    """
    runtime.start_interruptible()
    from realm_jax.inference.answerer import Answer, Answerer
    from realm_jax.inference.fill_mask import MASK, Filling, MaskFiller, with_mask

    question = with_mask(arguments.question)
    _check_flags(arguments, MASK in question)
    answerer = Answerer.open(arguments.workdir, arguments.overrides)
    answerer = answerer.by(arguments.retriever, fusion_of(arguments))
    result: Answer | Filling
    if MASK in question:
        result = MaskFiller(answerer).fill(question, arguments.answer)
    else:
        result = answerer.ask(question, arguments.k)
    if not arguments.json:
        sys.stdout.write(f"{result}\n")
    return result.as_dict()


def _check_flags(arguments: argparse.Namespace, has_mask: bool) -> None:
    if arguments.answer is not None and not has_mask:
        raise UsageError(
            "--answer needs a [MASK] in the text",
            where=f"--answer={arguments.answer}",
            expected='a sentence with one [MASK], as in "The capital of Norway is [MASK]."',
            found=arguments.question,
            fix="write [MASK] where the answer stands, or leave out --answer",
        )
    if arguments.k is not None and has_mask:
        raise UsageError(
            "--k is for questions",
            where=f"--k={arguments.k}",
            found=arguments.question,
            fix="leave out --k: a sentence with [MASK] reads config.retrieval.candidates passages",
        )
