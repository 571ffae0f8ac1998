"""What the verbs that start jobs share: their flags, their config, their two processes."""

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
from realm_jax.cli import exit_codes
from realm_jax.cli.arguments import add_dry_run, positive
from realm_jax.errors import ConfigError, RealmError, Stopped
from realm_jax.storage.layout import RunDir
from realm_jax.storage.staging import local_to_append

PATIENCE = 60.0  # seconds that a builder gets to end by itself, and again to heed SIGTERM

log = logging.getLogger(__name__)


def add_job_arguments(
    parser: argparse.ArgumentParser, *, config: bool = True, dry_run: bool = True
) -> None:
    """--workdir, --config, --devices, --dry-run and --json."""
    parser.add_argument("--workdir", required=True, help="run folder; the same one resumes")
    if config:
        parser.add_argument("--config", help="experiments/NAME.py; default: the workdir's config")
        parser.set_defaults(overridable=True)
    if dry_run:
        add_dry_run(parser)
    parser.add_argument("--devices", type=positive, default=0, help="virtual CPU devices to make")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")


def job_config(arguments: argparse.Namespace) -> ConfigDict:
    """The config named on the command line, or the one the workdir has, with overrides."""
    kept = RunDir(arguments.workdir).config
    if arguments.config is None and kept.exists():
        config = config_lib.from_json(kept.read_text(), where=kept).copy_and_resolve_references()
        config.unlock()
        for key, text in arguments.overrides.items():
            config_lib.set_key(config, key, text)
        return config_lib.check(config)
    if arguments.config is None:
        raise ConfigError(
            "no config, and the workdir holds none",
            where=arguments.workdir,
            fix="give --config=experiments/NAME.py",
        )
    return config_lib.load(arguments.config, arguments.overrides)


def until_stopped(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The report of `work`, or one that says where a stop signal ended it."""
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
    """The trainer in this process, the index builder in a second one.

    Raises:
      Stopped: a stop signal came, to this process or to the builder.
      RealmError: the builder died; its own words are on stderr and in logs/index_builder.log.
    """
    from realm_jax.trainer.run import run as train

    def beside() -> contextlib.AbstractContextManager[None]:
        return _builder(workdir, config, stop)

    train(workdir, config, stop, beside)


@contextlib.contextmanager
def _builder(workdir: str, config: ConfigDict, stop: threading.Event) -> Iterator[None]:
    """The index builder works on the run as long as the block does."""
    kept = RunDir(workdir).logs / "index_builder.log"
    with local_to_append(kept) as log_path, log_path.open("ab") as output:
        builder = start_process(builder_command(workdir, config), output)
        died: list[int] = []  # its exit code
        over = threading.Event()  # the trainer has ended, well or not
        threading.Thread(target=_watch, args=(builder, over, stop, died), daemon=True).start()
        try:
            yield
            over.set()
            with contextlib.suppress(subprocess.TimeoutExpired):
                builder.wait(timeout=PATIENCE)
        finally:
            over.set()
            _end(builder)
            if died:
                raise _death(kept, log_path, died[0])


def builder_command(workdir: str, config: ConfigDict) -> list[str]:
    """The builder lives as long as this process holds the other end of its standard input."""
    command = [sys.executable, "-m", "realm_jax.cli.main", "index", f"--workdir={workdir}"]
    return [*command, f"--poll={config.builder.poll_seconds}", "--beside-trainer"]


def start_process(command: list[str], output: Any) -> "subprocess.Popen[bytes]":
    """A child with a pipe for its standard input, and its words in a file."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment
    )


def _watch(
    builder: "subprocess.Popen[bytes]",
    over: threading.Event,
    stop: threading.Event,
    died: list[int],
) -> None:
    """A builder that ends before its end marker ends the run: nothing fresh would ever come."""
    code = builder.wait()
    if over.is_set() or stop.is_set() or code == exit_codes.DONE:
        return
    if code == exit_codes.STOPPED:
        log.warning("the index builder was told to stop; stopping too")
    else:
        died.append(code)
    stop.set()


def _death(kept: epath.Path, log_path: Path, code: int) -> RealmError:
    """With its last words, which lie in `log_path` and will lie in `kept`."""
    tail = log_path.read_text(errors="replace").splitlines()[-5:]
    return RealmError(
        "the index builder died",
        where=kept,
        found=f"exit code {code}: " + " | ".join(tail),
        fix="mend what it says, then run the same command again",
    )


def _end(builder: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, then SIGKILL: what a builder leaves is safe at any moment."""
    if builder.poll() is None:
        builder.terminate()
        try:
            builder.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning("the index builder is still at a shard; killing it, it will do that again")
            builder.kill()
            builder.wait()
    if builder.stdin is not None:
        builder.stdin.close()
