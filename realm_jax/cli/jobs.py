"""What the verbs that start jobs share: their flags, their config, their two processes."""

import argparse
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.errors import ConfigError, RealmError
from realm_jax.exchange.layout import RunDir


def add_job_arguments(parser: argparse.ArgumentParser, *, config: bool = True) -> None:
    """--workdir, --config, --devices and --json."""
    parser.add_argument("--workdir", required=True, help="run folder; the same one resumes")
    if config:
        parser.add_argument("--config", help="experiments/NAME.py; default: the workdir's config")
    parser.add_argument("--devices", type=int, default=0, help="virtual CPU devices to make")
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


def run_both(workdir: str, config: ConfigDict, stop: threading.Event) -> None:
    """The trainer in this process, the index builder in a second one.

    Raises:
      RealmError: the builder died; its own words are on stderr and in logs/index_builder.log.
    """
    from realm_jax.trainer.run import run as train

    run_dir = RunDir(workdir)
    log_path = Path(str(run_dir.logs)) / "index_builder.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as output:
        builder = _start_builder(workdir, config, output)
        failed: list[RealmError] = []
        watcher = threading.Thread(
            target=_watch, args=(builder, stop, log_path, failed), daemon=True
        )
        watcher.start()
        try:
            train(workdir, config, stop)
            builder.wait(timeout=60)
        finally:
            if builder.poll() is None:
                builder.send_signal(signal.SIGTERM)
                builder.wait(timeout=60)
            if failed:
                raise failed[0]


def _start_builder(workdir: str, config: ConfigDict, output: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "realm_jax.cli.main", "index", f"--workdir={workdir}"]
    command += [f"--poll={config.builder.poll_seconds}"]
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def _watch(
    builder: "subprocess.Popen[bytes]",
    stop: threading.Event,
    log_path: Path,
    failed: list[RealmError],
) -> None:
    code = builder.wait()
    if code not in (0, -signal.SIGTERM) and not stop.is_set():
        tail = log_path.read_text(errors="replace").splitlines()[-5:]
        failed.append(
            RealmError(
                "the index builder died",
                where=log_path,
                found=f"exit code {code}: " + " | ".join(tail),
                fix="mend what it says, then run the same command again",
            )
        )
        stop.set()
