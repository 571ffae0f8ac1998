"""`realm`: one command, a verb for each thing a person wants done."""

import argparse
import errno
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from realm_jax import __version__, runtime
from realm_jax.cli import completion, exit_codes
from realm_jax.errors import RealmError, UsageError


class Verb(NamedTuple):
    """A module of this package, imported when the verb is asked for, and what the verb does.

    The module has EXAMPLE, add_arguments(parser) and main(arguments) -> report.
    """

    module: str
    help: str


VERBS = {
    "demo": Verb(
        "demo", "learn retrieval from masked text on the built-in almanac, in minutes, on two cores"
    ),
    "corpus": Verb("corpus", "build a corpus from your text, or look into one"),
    "tag": Verb("tag", "train the span tagger, judge it, or mark the salient spans of a corpus"),
    "train": Verb("train", "the trainer job: ICT, reader warm start, REALM pre-training, open QA"),
    "index": Verb(
        "index",
        "the index-builder job: follows snapshots, publishes fresh indexes until the run ends",
    ),
    "run": Verb("run", "both jobs on this machine, as two processes"),
    "finetune": Verb(
        "finetune", "teach a pre-trained run to answer questions, with its passage index frozen"
    ),
    "eval": Verb("eval", "exact match and recall of a trained run on a file of questions"),
    "ask": Verb("ask", "ask a trained run a question, or give it a sentence with one [MASK]"),
    "serve": Verb("serve", "a page and a JSON API that answer, and take changes to passages live"),
    "status": Verb(
        "status", "where the two jobs of a run stand, read from its folder (also a remote one)"
    ),
    "report": Verb("report", "report.html of a run, one file, and a model card beside its export"),
    "compile": Verb(
        "compile_step",
        "a step through the real TPU compiler, on a machine without TPUs: memory, FLOPs",
    ),
    "plan": Verb("plan", "step time, refresh, staleness, memory and chip-hours of a run, on paper"),
    "doctor": Verb(
        "doctor", "versions, devices, processor, memory, disk, missing extras; can the demo run?"
    ),
    "check": Verb("check", "verify any checkpoint, snapshot, index, corpus or run folder"),
    "import": Verb(
        "import_weights", "other people's BERT or REALM weights into a folder to start from"
    ),
    "export": Verb(
        "export_weights", "our networks for Hugging Face's BertModel or sentence-transformers"
    ),
    "completion": Verb(
        "completion", "a script for bash, zsh or fish: completes verbs, flags, config keys"
    ),
}
_EPILOG = f"""\
first steps:
  realm demo
  realm ask --workdir=runs/demo "What do people call Norway in Icelandic?"

exit codes:
  {exit_codes.DONE}   done
  {exit_codes.PROBLEM}   a problem, told in a sentence
  {exit_codes.USAGE}   wrong usage: the command line itself
  {exit_codes.STOPPED}  stopped by a signal, all saved: run the same command again
  {exit_codes.PEER_GONE}  another process of this job is gone: run the same command on all again
"""

_KEYS = """
config keys, as many as you like:
  --config.KEY=VALUE  sets one, as in --config.stages.realm.steps=300; realm_jax/defaults.py has all
"""


class _Parser(argparse.ArgumentParser):
    """Errors in our words, on one door, with exit code 2."""

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {message}\n  see: {self.prog} --help\n")
        raise SystemExit(exit_codes.USAGE)

    def format_help(self) -> str:
        """With a word on config keys where a verb takes them."""
        return super().format_help() + (_KEYS if self.get_default("overridable") else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; for exit codes see `exit_codes`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if completion.is_asked():
        parser, verb = make_parser(completion.asked_words())
        completion.answer(parser, verb)
    parser, verb = make_parser(arguments)
    parsed, rest = parser.parse_known_args(arguments)
    assert verb is not None
    if rest and "overridable" not in parsed:
        verb.error(f"unknown argument {rest[0]!r}")
    parsed.overrides = _overrides(rest, verb.error)
    return _run(parsed)


def make_parser(arguments: Sequence[str]) -> tuple[_Parser, _Parser | None]:
    """The parser of a command line, and of its verb, of which alone the module is imported."""
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
            sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
            sys.stdout.flush()
    except RealmError as error:
        sys.stderr.write(f"realm {verb}: {error}\n")
        return exit_codes.USAGE if isinstance(error, UsageError) else exit_codes.PROBLEM
    except OSError as error:
        sys.stderr.write(f"realm {verb}: {_of_the_machine(error)}\n")
        return exit_codes.PROBLEM
    except (RuntimeError, AssertionError):
        problem = runtime.device_problem() if "jax" in sys.modules else None
        if problem is None:
            raise
        sys.stderr.write(f"realm {verb}: {problem}\n")
        return exit_codes.PROBLEM
    except KeyboardInterrupt:
        sys.stderr.write(f"realm {verb}: interrupted\n")
        return exit_codes.STOPPED
    return int(report.get("exit_code", exit_codes.DONE))


def _of_the_machine(error: OSError) -> RealmError:
    """A full disk, a forbidden folder, a name taken by a file: in the words of all our errors."""
    fixes = {
        errno.ENOSPC: "free some space, then run the same command again",
        errno.EACCES: "choose a folder that you may write to",
        errno.EROFS: "choose a folder that you may write to",
        errno.EPERM: "choose a folder that you may write to",
        errno.EEXIST: "choose another folder: this name is a file's",
        errno.ENOTDIR: "choose another folder: this name is a file's",
    }
    problem = error.strerror or str(error) or type(error).__name__
    fix = None if error.errno is None else fixes.get(error.errno)
    return RealmError(problem, where=error.filename, fix=fix)


def _overrides(rest: Sequence[str], refuse: Callable[[str], Any]) -> dict[str, str]:
    """`--config.a.b=value` arguments; anything else is refused."""
    overrides = {}
    for argument in rest:
        key, equals, value = argument.removeprefix("--config.").partition("=")
        if not argument.startswith("--config.") or not equals:
            refuse(f"unknown argument {argument!r} (overrides look like --config.a.b=value)")
        overrides[key] = value
    return overrides


if __name__ == "__main__":
    sys.exit(main())
