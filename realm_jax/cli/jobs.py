"""Flags and config of the verbs that start jobs, and the two processes of `realm run`."""

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.cli import exit_codes
from realm_jax.cli.arguments import add_dry_run, add_json, positive
from realm_jax.cli.overrides import ALL, PATHS
from realm_jax.errors import ConfigError, RealmError, Stopped
from realm_jax.storage.layout import RunDir
from realm_jax.storage.staging import local_to_append

STOP_TIMEOUT = 60.0  # seconds until a builder has ended by itself, and again after SIGTERM

log = logging.getLogger(__name__)


def add_job_arguments(
    parser: argparse.ArgumentParser, *, config: bool = True, dry_run: bool = True
) -> None:
    """Adds --workdir, --config, --devices, --dry-run and --json."""
    parser.add_argument("--workdir", required=True, help="run folder; an existing run is resumed")
    if config:
        names = ", ".join(config_lib.recipes())
        parser.add_argument(
            "--config",
            help=f"recipe name or Python file; default: the workdir's config. Recipes: {names}",
        )
    parser.set_defaults(overridable=ALL if config else PATHS)
    if dry_run:
        add_dry_run(parser)
    parser.add_argument("--devices", type=positive, default=0, help="number of virtual CPU devices")
    add_json(parser)


def job_config(arguments: argparse.Namespace) -> ConfigDict:
    """The config of --config, or else that of the workdir, with overrides.

    Raises:
      ConfigError: neither exists, or see `config.load`.
    """
    from realm_jax.artifacts.run_config import newest_config

    kept = newest_config(RunDir(arguments.workdir)) if arguments.config is None else None
    if kept is not None:
        config = kept.copy_and_resolve_references()
        config.unlock()
        for key, text in arguments.overrides.items():
            config_lib.set_key(config, key, text)
        return config_lib.check(config)
    if arguments.config is None:
        raise ConfigError(
            "no --config, and the workdir has no config.json",
            where=arguments.workdir,
            fix="add --config=NAME, a recipe or a Python file",
        )
    from realm_jax.interop.start_config import load_config

    return load_config(arguments.config, arguments.overrides)


def until_stopped(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The report of `work`; if a stop signal ended it, a report with stage, step and exit code."""
    try:
        return work()
    except Stopped as stopped:
        sys.stderr.write(f"{stopped}\n")
        return {
            "state": "stopped",
            "stage": stopped.stage,
            "step": stopped.step,
            "exit_code": exit_codes.STOPPED,
        }


def run_both(workdir: str, config: ConfigDict, stop: threading.Event) -> None:
    """Runs the trainer in this process and the index builder in a second one.

    Raises:
      Stopped: this process or the builder received a stop signal.
      RealmError: the builder failed; its output is in logs/index_builder.log.
    """
    from realm_jax.trainer.run import run as train

    def builder() -> contextlib.AbstractContextManager[None]:
        return _builder(workdir, config, stop)

    train(workdir, config, stop, builder)


@contextlib.contextmanager
def _builder(workdir: str, config: ConfigDict, stop: threading.Event) -> Iterator[None]:
    """Starts the index builder; ends it when the block ends.

    Raises:
      RealmError: the builder failed.
    """
    kept = RunDir(workdir).logs / "index_builder.log"
    with local_to_append(kept) as log_path, log_path.open("ab") as output:
        builder = start_process(builder_command(workdir, config), output)
        failed: list[int] = []  # its exit code
        trainer_ended = threading.Event()
        threading.Thread(
            target=_watch, args=(builder, trainer_ended, stop, failed), daemon=True
        ).start()
        try:
            yield
            trainer_ended.set()
            with contextlib.suppress(subprocess.TimeoutExpired):
                builder.wait(timeout=STOP_TIMEOUT)
        finally:
            trainer_ended.set()
            _end(builder)
            if failed:
                raise _builder_error(kept, log_path, failed[0])


def builder_command(workdir: str, config: ConfigDict) -> list[str]:
    """The builder's command; with --beside-trainer it exits when its standard input is closed."""
    poll = f"--poll={config.builder.poll_seconds}"
    return runtime.realm_command("index", f"--workdir={workdir}", poll, "--beside-trainer")


def start_process(command: list[str], output: Any) -> "subprocess.Popen[bytes]":
    """A child process with a pipe as standard input and a file for its output.

    On a GPU that it shares with the trainer, which by default of JAX takes three quarters of the
    memory when it starts, the child takes only what it needs.
    """
    allocation = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment = allocation | os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment
    )


def _watch(
    builder: "subprocess.Popen[bytes]",
    trainer_ended: threading.Event,
    stop: threading.Event,
    failed: list[int],
) -> None:
    """Stops the trainer if the builder ends before the run does: no fresh index would follow."""
    code = builder.wait()
    if trainer_ended.is_set() or stop.is_set() or code == exit_codes.DONE:
        return
    if code == exit_codes.STOPPED:
        log.warning("the index builder received a stop signal; stopping the trainer too")
    else:
        failed.append(code)
    stop.set()


def _builder_error(kept: epath.Path, log_path: Path, code: int) -> RealmError:
    """Error with the last lines of the log, which is at `log_path` and is uploaded to `kept`."""
    tail = log_path.read_text(errors="replace").splitlines()[-5:]
    return RealmError(
        "the index builder failed",
        where=kept,
        found=f"exit code {code}: " + " | ".join(tail),
        fix="fix the error above, then run the same command to resume",
    )


def _end(builder: "subprocess.Popen[bytes]") -> None:
    """Sends SIGTERM, later SIGKILL; a builder can be killed at any moment without damage."""
    if builder.poll() is None:
        builder.terminate()
        try:
            builder.wait(timeout=STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            log.warning(
                "killing the index builder, which has not ended in time; it repeats its shard later"
            )
            builder.kill()
            builder.wait()
    if builder.stdin is not None:
        builder.stdin.close()
