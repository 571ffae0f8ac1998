"""Flags that verbs share; types of values, refused with a sentence where they cannot be."""

import argparse
import re


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """--questions, --format and --part."""
    parser.add_argument("--questions", required=True, help="question file, or quoted glob of some")
    parser.add_argument(
        "--format",
        choices=("own", "nq", "webquestions", "trec", "squad"),
        default="own",
        help="own is JSON lines: question, answers",
    )
    parser.add_argument(
        "--part",
        choices=("all", "train", "dev"),
        default="all",
        help="part of a file that has both published parts (webquestions, trec)",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """--dry-run."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all inputs, say what would be done, do nothing",
    )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return whole(text, 1)


def natural(text: str) -> int:
    """A whole number of at least 0."""
    return whole(text, 0)


def whole(text: str, least: int) -> int:
    """A whole number of at least so much."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least {least}, found {text!r}"
        )
    return value


def count(text: str) -> int:
    """A whole number of at least 1, also as in 1e9."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (1 <= value < float("inf") and value.is_integer()):
        raise argparse.ArgumentTypeError(f"expected a number of things, as 1e9, found {text!r}")
    return int(value)


def seconds(text: str) -> float:
    """A time span of more than no seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0, found {text!r}")
    return value


def file_name(text: str) -> str:
    """What can be part of the name of a file, wherever that lies; "" for none."""
    if not re.fullmatch(r"[A-Za-z0-9._-]*", text):
        raise argparse.ArgumentTypeError(f"expected letters, digits and ._- alone, found {text!r}")
    return text
