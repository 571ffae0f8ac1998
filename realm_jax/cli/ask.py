"""`realm ask`: a question, or a sentence with a blank, to a trained run."""

import argparse
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import positive

EXAMPLE = 'realm ask --workdir=runs/demo "What do people call Norway in Icelandic?"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("--workdir", required=True, help="folder of a finished run")
    parser.add_argument("--k", type=positive, help="passages to read; default: as in fine-tuning")
    parser.add_argument("--answer", help="with [MASK]: how likely is this answer?")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("question", help="a question, or a sentence with one [MASK]")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints the answer with its evidence."""
    runtime.start_interruptible()
    from realm_jax.inference.answerer import Answer, Answerer
    from realm_jax.inference.fill_mask import MASK, MaskFiller, Filling

    answerer = Answerer.open(arguments.workdir)
    said: Answer | Filling
    if MASK in arguments.question:
        said = MaskFiller(answerer).fill(arguments.question, arguments.answer)
    else:
        said = answerer.ask(arguments.question, arguments.k)
    if not arguments.json:
        sys.stdout.write(f"{said}\n")
    return said.as_dict()
