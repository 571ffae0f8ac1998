"""Which config keys a verb accepts as `--config.KEY=VALUE`."""

import argparse

ALL, PATHS = "all keys", "paths"  # values of the parser's default `overridable`


def add_workdir(parser: argparse.ArgumentParser, help: str = "folder of a finished run") -> None:
    """--workdir of a verb that reads a run, and the paths of its inputs as overrides."""
    parser.add_argument("--workdir", required=True, help=help)
    parser.set_defaults(overridable=PATHS)
