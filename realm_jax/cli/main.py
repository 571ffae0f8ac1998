"""`realm`: one command, a verb for each thing a person wants done."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from realm_jax import __version__
from realm_jax.errors import RealmError

# verb -> module with HELP, EXAMPLE, add_arguments(parser) and main(arguments) -> report
VERBS = {
    "demo": "realm_jax.cli.demo",
    "corpus": "realm_jax.cli.corpus",
    "train": "realm_jax.cli.train",
    "index": "realm_jax.cli.index",
    "run": "realm_jax.cli.run",
    "finetune": "realm_jax.cli.finetune",
    "eval": "realm_jax.cli.eval",
    "ask": "realm_jax.cli.ask",
    "check": "realm_jax.cli.check",
}

EXIT_OK, EXIT_PROBLEM, EXIT_USAGE, EXIT_STOPPED = 0, 1, 2, 75


class _Parser(argparse.ArgumentParser):
    """Errors in our words, on one door, with exit code 2."""

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {message}\n  see: {self.prog} --help\n")
        raise SystemExit(EXIT_USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; exit codes: 0 done, 1 a problem, 2 wrong usage, 75 stopped and resumable."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments if word in VERBS), None)
    parser = _Parser(prog="realm", description="REALM in JAX: retrieval learned from masked text.")
    parser.add_argument("--version", action="version", version=f"realm {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for name, module_name in VERBS.items():
        module = import_module(module_name)
        child = verbs.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        child.set_defaults(main=module.main)
        module.add_arguments(child)
    parsed, rest = parser.parse_known_args(arguments)
    parsed.overrides = _overrides(rest, verbs.choices[verb or "demo"].error)
    return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    try:
        report = parsed.main(parsed)
    except RealmError as error:
        sys.stderr.write(f"realm {parsed.verb}: {error}\n")
        return EXIT_PROBLEM
    except KeyboardInterrupt:
        sys.stderr.write(f"realm {parsed.verb}: stopped; the same command goes on\n")
        return EXIT_STOPPED
    logging.shutdown()
    if report is None:
        return EXIT_OK
    if getattr(parsed, "json", False):
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    return int(report.get("exit_code", EXIT_OK))


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
