"""`realm ask`: a question, or a sentence with a blank, to a trained run."""

import argparse
import sys
from typing import Any

from realm_jax import runtime
from realm_jax.cli.arguments import positive

HELP = "ask a trained run a question, or give it a sentence with one [MASK]"
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
    runtime.log_to_stderr()
    from realm_jax.answer.answerer import Answerer
    from realm_jax.answer.blanks import BLANK, BlankFiller

    answerer = Answerer.open(arguments.workdir)
    if BLANK in arguments.question:
        filling = BlankFiller(answerer).fill(arguments.question, arguments.answer)
        report = filling.as_dict()
        headline = (
            f"{filling.answer}   p(y|x) {filling.probability:.3f}   without retrieval "
            f"{filling.without_retrieval:.2g} (it would say {filling.answer_without_retrieval!r})"
        )
    else:
        answer = answerer.ask(arguments.question, arguments.k)
        report = answer.as_dict()
        headline = f"{answer.answer}   p {answer.probability:.3f}"
    if not arguments.json:
        sys.stdout.write(
            f"{headline}\n\n{_evidence(report)}\nindex of step {report['index_step']}\n"
        )
    return report


def _evidence(report: dict[str, Any]) -> str:
    lines = []
    for passage in report["passages"]:
        bar = "#" * round(20 * passage["p_z"])
        text = passage["text"]
        if passage["span"] is not None:
            start, stop = passage["span"]
            text = f"{text[:start]}>>{text[start:stop]}<<{text[stop:]}"
        lines.append(f"p(z|x) {passage['p_z']:.3f} {bar:<20} {passage['title']}\n    {text}\n")
    return "".join(lines)
