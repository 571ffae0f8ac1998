"""Flags that several verbs share, and argument types with clear errors."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realm_jax.retrieval.fusion import Fusion


class Once(argparse.Action):
    """Stores the value of a flag that names data. A second value is an error."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Sets the value."""
        if getattr(namespace, self.dest) is not self.default:
            raise argparse.ArgumentError(
                self, f"given twice, the second time as {values!r}; expected: {self.help}"
            )
        setattr(namespace, self.dest, values)


def add_question_arguments(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    judged: bool = False,
    from_config: bool = False,
) -> None:
    """--questions, --format and --part; with `judged` also those of judged sets.

    With `from_config`, --format and --part are None if they are not given.
    """
    formats: tuple[str, ...] = ("own", "nq", "webquestions", "trec", "squad")
    parts: tuple[str, ...] = ("all", "train", "dev")
    default_format, default_part = (None, None) if from_config else ("own", "all")
    file, format_help = "question file, or a quoted glob", "file format; own: JSON lines with "
    format_help += "question and answers; default: "
    part_help = "published part of a file that holds both (webquestions, trec)"
    if judged:
        formats, parts = (*formats, "beir"), (*parts, "test")
        file += "; format beir: a folder with queries.jsonl and qrels"
        part_help += "; beir: file of qrels/"
    parser.add_argument("--questions", action=Once, required=required, help=file)
    format_help += default_format or "that of the config"
    part_help += f"; default: {default_part or 'that of the config'}"
    parser.add_argument("--format", choices=formats, default=default_format, help=format_help)
    parser.add_argument("--part", choices=parts, default=default_part, help=part_help)


def add_retriever(parser: argparse.ArgumentParser) -> None:
    """--retriever, --fusion and --dense-weight; see `fusion_of`."""
    parser.add_argument(
        "--retriever",
        choices=("dense", "bm25", "hybrid"),
        default="dense",
        help="dense: passage vectors (default); bm25: words, without training; hybrid: both",
    )
    parser.add_argument(
        "--fusion",
        choices=("weighted_sum", "reciprocal_rank"),
        default="weighted_sum",
        help="of hybrid; default: weighted_sum",
    )
    parser.add_argument(
        "--dense-weight",
        type=share,
        metavar="SHARE",
        help="of hybrid: share of the dense ranking in the fused score, 0 to 1; default: 0.7, or "
        "0.5 for reciprocal_rank",
    )


def fusion_of(arguments: argparse.Namespace) -> "Fusion":
    """The fusion that the flags of `add_retriever` ask for."""
    from realm_jax.retrieval.fusion import Fusion

    return Fusion(arguments.fusion, arguments.dense_weight)


def add_verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help: str, example: str
) -> argparse.ArgumentParser:
    """A verb below another one, with an example at the end of its help."""
    return verbs.add_parser(name, help=help, epilog=f"example: {example}")


def add_flag(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """A flag without a value; False if it is not given."""
    parser.add_argument(name, action="store_true", help=help)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """--dry-run."""
    add_flag(
        parser,
        "--dry-run",
        "check all inputs and print what the command would do, without doing it",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    add_flag(parser, "--json", "print one JSON object as the last line")


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
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1, as in 1e9, found {text!r}"
        )
    return int(value)


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found {text!r}")
    return value


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text!r}")
    return value
