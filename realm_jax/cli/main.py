"""`realm`: one command, a verb for each thing a person wants done."""

import argparse
import errno
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from realm_jax import __version__
from realm_jax.cli import exit_codes
from realm_jax.errors import RealmError

# verb -> module with HELP, EXAMPLE, add_arguments(parser) and main(arguments) -> report
VERBS = {
    "demo": "realm_jax.cli.demo",
    "corpus": "realm_jax.cli.corpus",
    "tag": "realm_jax.cli.tag",
    "train": "realm_jax.cli.train",
    "index": "realm_jax.cli.index",
    "run": "realm_jax.cli.run",
    "finetune": "realm_jax.cli.finetune",
    "eval": "realm_jax.cli.eval",
    "ask": "realm_jax.cli.ask",
    "serve": "realm_jax.cli.serve",
    "status": "realm_jax.cli.status",
    "compile": "realm_jax.cli.compile_step",
    "plan": "realm_jax.cli.plan",
    "doctor": "realm_jax.cli.doctor",
    "check": "realm_jax.cli.check",
    "import": "realm_jax.cli.import_weights",
    "export": "realm_jax.cli.export_weights",
}


class _Parser(argparse.ArgumentParser):
    """Errors in our words, on one door, with exit code 2."""

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {message}\n  see: {self.prog} --help\n")
        raise SystemExit(exit_codes.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; exit codes: 0 done, 1 a problem, 2 wrong usage, 75 stopped and resumable."""
    arguments = list(sys.argv[1:] if argv is None else argv)
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
    refuse = verbs.choices[parsed.verb].error
    if rest and "overridable" not in parsed:
        refuse(f"unknown argument {rest[0]!r}")
    parsed.overrides = _overrides(rest, refuse)
    return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    try:
        report = parsed.main(parsed)
        if parsed.json:
            sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
            sys.stdout.flush()
    except RealmError as error:
        sys.stderr.write(f"realm {parsed.verb}: {error}\n")
        return exit_codes.PROBLEM
    except OSError as error:
        sys.stderr.write(f"realm {parsed.verb}: {_of_the_machine(error)}\n")
        return exit_codes.PROBLEM
    except KeyboardInterrupt:
        sys.stderr.write(f"realm {parsed.verb}: interrupted\n")
        return exit_codes.STOPPED
    return int(report.get("exit_code", exit_codes.DONE))


def _of_the_machine(error: OSError) -> RealmError:
    """A full disk, a forbidden folder, a name taken by a file: in the words of all our errors."""
    fixes = {
        errno.ENOSPC: "free some space, then run the same command again",
        errno.EACCES: "choose a folder that you may write to",
        errno.EROFS: "choose a folder that you may write to",
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
