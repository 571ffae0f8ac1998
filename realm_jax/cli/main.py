"""The command `realm` and its verbs."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from realm_jax import __version__, config_paths
from realm_jax.cli import completion, exit_codes, machine_errors, streams, words
from realm_jax.cli.overrides import ALL, PATHS
from realm_jax.errors import RealmError, UsageError


class Verb(NamedTuple):
    """A verb and its line of help.

    Its module in this package has EXAMPLE, add_arguments(parser) and main(arguments) -> report. The
    module is imported only if the verb is used.
    """

    module: str
    help: str


VERBS = {
    "demo": Verb(
        "demo", "train REALM on a small built-in corpus and measure it: minutes on two CPU cores"
    ),
    "corpus": Verb("corpus", "build a corpus from text, inspect it, add or remove documents"),
    "tag": Verb(
        "tag", "train or evaluate the span tagger, or annotate the salient spans of a corpus"
    ),
    "train": Verb("train", "the trainer job: reader warm start, ICT, REALM pre-training, open QA"),
    "index": Verb(
        "index",
        "the index-builder job: embeds the corpus for each snapshot and publishes a fresh index",
    ),
    "run": Verb("run", "the trainer and the index builder on this machine, as two processes"),
    "finetune": Verb(
        "finetune", "fine-tune a pre-trained run on open-domain QA; its passage index stays fixed"
    ),
    "eval": Verb(
        "eval", "exact match and recall of a trained run on questions, or measures of a judged set"
    ),
    "ask": Verb("ask", "answer a question with a trained run, or fill the [MASK] of a sentence"),
    "serve": Verb("serve", "web page and JSON API of a trained run; passages can be edited"),
    "status": Verb(
        "status", "progress of both jobs of a run, read from its folder (local or object store)"
    ),
    "report": Verb("report", "write report.html of a run, and a model card for its exported model"),
    "compile": Verb(
        "compile_step",
        "compile a step with the TPU compiler, without a TPU: memory, FLOPs, collectives",
    ),
    "plan": Verb(
        "plan", "estimate step time, refresh time, staleness, memory and chip-hours of a run"
    ),
    "doctor": Verb(
        "doctor", "check versions, devices, CPU, memory, disk and extras: can the demo run?"
    ),
    "check": Verb(
        "check", "verify the checksums of a checkpoint, snapshot, index, export, corpus or run"
    ),
    "import": Verb(
        "import_weights", "convert BERT or REALM weights (Hugging Face, TensorFlow) for model.start"
    ),
    "export": Verb(
        "export_weights", "convert trained networks for Hugging Face or sentence-transformers"
    ),
    "completion": Verb(
        "completion", "shell completion (bash, zsh, fish) of verbs, flags and config keys"
    ),
}
_EPILOG = f"""\
first steps:
  realm demo
  realm ask --workdir=runs/demo "What do people call Norway in Icelandic?"

exit codes:
  {exit_codes.DONE}   success
  {exit_codes.ERROR}   error; the message is on stderr
  {exit_codes.USAGE}   invalid command line
  {exit_codes.STOPPED}  stopped by a signal, progress saved: run the same command to resume
  {exit_codes.PEER_GONE}  another process of this job was lost: run the same command on all hosts
  {exit_codes.READER_GONE} the reader of stdout has ended, as in `realm eval ... | head`
"""

_KEYS = {
    ALL: """
config overrides, any number:
  --config.KEY=VALUE  as in --config.stages.realm.steps=300; all keys: docs/reference/config.md
""",
    PATHS: """
inputs that are elsewhere on this machine, any number:
  --config.KEY=PATH  as in --config.corpus.knowledge=/data/wiki
""",
}


class _Parser(argparse.ArgumentParser):
    """Prints usage errors in two lines and exits with code 2; refuses empty values."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.register("type", None, words.some)  # of all arguments without a type
        self.register("type", Path, words.some_path)

    def add_subparsers(self, **kwargs: Any) -> Any:
        """Sub-verbs, whose own parsers check their values."""
        verbs = super().add_subparsers(**kwargs)
        verbs.type = str
        return verbs

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {message}\n  see: {self.prog} --help\n")
        raise SystemExit(exit_codes.USAGE)

    def format_help(self) -> str:
        """Adds a note on config overrides to verbs that accept them."""
        return super().format_help() + _KEYS.get(self.get_default("overridable"), "")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb and returns its exit code (`exit_codes`)."""
    os.environ["PYTHONSAFEPATH"] = "1"  # no child imports from the current folder
    streams.prepare_streams()
    arguments = words.expanded(sys.argv[1:] if argv is None else argv)
    if completion.is_asked():
        parser, verb = make_parser(completion.asked_words())
        completion.answer(parser, verb)
    try:
        parser, verb = make_parser(arguments)
    except ValueError as error:  # jax reads its variables when it is imported
        if (problem := machine_errors.problem_of(error)) is None:
            raise
        sys.stderr.write(f"realm: {problem}\n")
        return exit_codes.ERROR
    others, overrides = _without_overrides(arguments)
    parsed, rest = parser.parse_known_args(others)
    assert verb is not None
    if overrides and "overridable" not in parsed:
        verb.error(words.unknown(overrides, arguments))
    parsed.overrides = _values_of(overrides, verb.error)
    if rest:
        verb.error(words.unknown(rest, arguments))
    if vars(parsed).get("overridable") == PATHS:
        _check_paths(parsed.overrides, verb.error)
    return _run(parsed)


def make_parser(arguments: Sequence[str]) -> tuple[_Parser, _Parser | None]:
    """The parsers of `realm` and of the used verb; imports the module of that verb only."""
    parser = _Parser(
        prog="realm",
        description="REALM in JAX: retrieval learned from masked text.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"realm {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    found = None
    for name, verb in VERBS.items():
        child = verbs.add_parser(
            name,
            help=verb.help,
            description=verb.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            found, module = child, import_module(f"realm_jax.cli.{verb.module}")
            child.epilog = f"example:\n  {module.EXAMPLE}"
            child.set_defaults(main=module.main)
            module.add_arguments(child)
    return parser, found


def _run(parsed: argparse.Namespace) -> int:
    verb = " ".join([parsed.verb, *filter(None, [vars(parsed).get(f"{parsed.verb}_verb")])])
    try:
        report = parsed.main(parsed)
        if parsed.json:
            ascii_only = not streams.is_unicode(sys.stdout)
            sys.stdout.write(json.dumps(report, ensure_ascii=ascii_only) + "\n")
        sys.stdout.flush()
    except RealmError as error:
        sys.stderr.write(f"realm {verb}: {error}\n")
        return exit_codes.USAGE if isinstance(error, UsageError) else exit_codes.ERROR
    except machine_errors.KINDS as error:
        if isinstance(error, BrokenPipeError) and streams.reader_has_gone():
            return exit_codes.READER_GONE
        if (problem := machine_errors.problem_of(error)) is None:
            raise
        sys.stderr.write(f"realm {verb}: {problem}\n")
        return exit_codes.ERROR
    except KeyboardInterrupt:
        sys.stderr.write(f"realm {verb}: interrupted\n")
        return exit_codes.STOPPED
    return int(report.get("exit_code", exit_codes.DONE))


def _without_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The other arguments, and those that begin with `--config.`.

    argparse would take an override whose value has a blank for a positional argument.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    overrides = [one for one in arguments[:end] if one.startswith("--config.")]
    others = [one for one in arguments[:end] if not one.startswith("--config.")]
    return [*others, *arguments[end:]], overrides


def _values_of(overrides: Sequence[str], refuse: Callable[[str], Any]) -> dict[str, str]:
    """Dotted key -> value of `--config.KEY=VALUE`; without a value, a usage error."""
    values = {}
    for argument in overrides:
        key, equals, value = argument.removeprefix("--config.").partition("=")
        if not equals:
            refuse(f"unknown argument {argument!r}: write {argument}=VALUE")
        values[key] = value
    return values


def _check_paths(overrides: dict[str, str], refuse: Callable[[str], Any]) -> None:
    """Refuses keys that are not paths: all other settings are those of the training."""
    for key in overrides.keys() - set(config_paths.KEYS):
        known, given = ", ".join(config_paths.KEYS), f"--config.{key}={overrides[key]}"
        refuse(f"this verb only accepts config keys of paths, not {given}: {known}")


if __name__ == "__main__":
    sys.exit(main())
