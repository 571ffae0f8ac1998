"""Flags that several verbs share, and argument types with clear errors."""

import argparse


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """--questions, --format and --part."""
    parser.add_argument("--questions", required=True, help="question file, or a quoted glob")
    parser.add_argument(
        "--format",
        choices=("own", "nq", "webquestions", "trec", "squad"),
        default="own",
        help="file format; own: JSON lines with question and answers (default)",
    )
    parser.add_argument(
        "--part",
        choices=("all", "train", "dev"),
        default="all",
        help="published part of a file that holds both (webquestions, trec); default: all",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """--dry-run."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all inputs and print what the command would do, without doing it",
    )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return whole(text, 1)


def natural(text: str) -> int:
    """A whole number of at least 0."""
    return whole(text, 0)


def whole(text: str, least: int) -> int:
    """A whole number of at least `least`."""
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
    """A whole number of at least 1; accepts 1e9."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (1 <= value < float("inf") and value.is_integer()):
        raise argparse.ArgumentTypeError(f"expected a whole number, as in 1e9, found {text!r}")
    return int(value)


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text!r}")
    return value
