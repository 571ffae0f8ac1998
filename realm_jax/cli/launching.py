"""Shared by the scripts in `launch/`: commands of both jobs, and checks of cloud names."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from realm_jax import config as config_lib
from realm_jax.cli.exit_codes import PEER_GONE, STOPPED
from realm_jax.errors import ConfigError, InputError, RealmError
from realm_jax.planning.chips import Slice, slice_of

COORDINATOR_PORT = 8476
EXTRAS = "tpu,gs"  # of this package, on machines with TPUs whose run folder is gs://
RESTART_CODES = (STOPPED, PEER_GONE)  # exit codes after which the same command resumes
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_BUCKET = re.compile(r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]")


def train_command(
    workdir: str, config: str, extra: Sequence[str], many: tuple[str, int, str] | None = None
) -> list[str]:
    """The command `realm train`, optionally as one of several processes.

    Args:
      workdir: run folder or bucket address.
      config: recipe name or path.
      extra: overrides, `--config.a.b=value`.
      many: coordinator HOST:PORT, number of processes, number of this one (or a placeholder).
    """
    command = ["realm", "train", f"--workdir={workdir}", f"--config={config}", *extra]
    if many is not None:
        coordinator, processes, process = many
        command += [f"--coordinator={coordinator}", f"--processes={processes}"]
        command += [f"--process={process}"]
    return command


def index_command(
    workdir: str, number: int | str, count: int, last_step: int | None = None
) -> list[str]:
    """The command `realm index` of builder `number`, or a placeholder for it, of `count`.

    `last_step`: of the trainer that is started at the same time; None if it is not known.
    """
    command = ["realm", "index", f"--workdir={workdir}", f"--worker={number}/{count}"]
    return command if last_step is None else [*command, f"--last-step={last_step}"]


def last_step(path: str, extra: Sequence[str]) -> int | None:
    """`stages.realm.steps` of a config with overrides; None if the file is on another machine."""
    key, values, config = "stages.realm.steps", _values(extra), config_lib.default()
    if path in config_lib.recipes() or Path(path).is_file():
        config = config_lib.load_unchecked(path, values)  # the trainer checks all values
    elif key in values:
        config_lib.set_key(config, key, values[key])
    else:
        return None
    return int(config_lib.value_of(config, key))


def check_overrides(extra: Sequence[str]) -> list[str]:
    """Returns the arguments if all are config overrides, which are passed to `realm train`.

    Raises:
      InputError: another argument.
    """
    for argument in extra:
        if not re.fullmatch(r"--config\.[a-z_.0-9]+=.*", argument, re.DOTALL):
            raise InputError(
                "unknown argument", expected="config overrides, --config.KEY=VALUE", found=argument
            )
    return list(extra)


def check_config(path: str | None, extra: Sequence[str]) -> list[str]:
    """Returns the overrides if they and the config are valid.

    Args:
      path: recipe name or path; None if the file is on another machine: only keys are checked.
      extra: see `check_overrides`.

    Raises:
      InputError: an argument that is not an override.
      ConfigError: no such file or key, or a value that is not allowed.
    """
    overrides = check_overrides(extra)
    values = _values(overrides)
    if path is not None:
        config_lib.load(path, values)
    else:
        defaults = config_lib.default()
        for key, text in values.items():
            config_lib.set_key(defaults, key, text)
    return overrides


def config_file(root: Path, config: str) -> Path:
    """The file of a recipe's name or of a path, which is relative to the repository `root`."""
    return root / (f"experiments/{config}.py" if config in config_lib.recipes() else config)


def check_in_head(root: Path, file: Path) -> str:
    """Returns the path of a config in the repository `root`, of which the machines get HEAD.

    Raises:
      ConfigError: HEAD lacks the file, or has other content.
    """
    path = os.path.relpath(file, root)
    for command, problem in (
        (["cat-file", "-e", f"HEAD:./{path}"], "the config is not in HEAD"),
        (["diff", "--quiet", "HEAD", "--", path], "the config differs from HEAD"),
    ):
        if ask(["git", "-C", str(root), *command]).returncode:
            raise ConfigError(
                f"{problem}, whose code the machines get",
                where="--config",
                expected=f"a recipe's name, or the path of a file in {root} as it was committed",
                found=file,
                fix=f"git add and git commit it in {root}, as in experiments/{file.name}",
            )
    return path


def _values(overrides: Sequence[str]) -> dict[str, str]:
    return dict(one.removeprefix("--config.").split("=", 1) for one in overrides)


def check_name(name: str) -> str:
    """Returns the name if Cloud TPU and Kubernetes accept it and host names made from it.

    Raises:
      InputError: they do not.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            "not a valid name for Cloud TPU and Kubernetes",
            where="--name",
            expected="at most 40 lower-case letters, digits and '-', the first a letter",
            found=name,
        )
    return name


def check_bucket(bucket: str) -> str:
    """`gs://NAME` from NAME or `gs://NAME`.

    Raises:
      InputError: not a valid bucket name.
    """
    name = bucket.removeprefix("gs://").rstrip("/")
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise InputError(
            "not a valid bucket name",
            where="--bucket",
            expected="3 to 63 lower-case letters, digits, '-', '_' and '.'",
            found=bucket,
        )
    return f"gs://{name}"


def check_trainer(name: str) -> Slice:
    """Returns the trainer's slice; the scripts request one slice only.

    Raises:
      InputError: an unknown topology, or several slices.
    """
    place = slice_of(name, "--trainer")
    if place.slices > 1:
        raise InputError(
            "these scripts start the trainer on one slice",
            where="--trainer",
            expected=f"one slice, such as {place.one_slice}",
            found=name,
            fix="give one slice; several slices can be compiled and planned, not launched",
        )
    return place


def check_zone(zone: str, tpu: Slice) -> str:
    """Returns the zone if it has TPUs of this kind.

    Raises:
      InputError: it does not; the message lists the zones that do.
    """
    if zone not in tpu.chip.zones:
        raise InputError(
            f"Cloud TPU has no {tpu.kind} in this zone",
            where="--zone",
            expected=" or ".join(tpu.chip.zones),
            found=zone,
        )
    return zone


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Runs commands in order.

    Raises:
      RealmError: a command is not installed or fails; the following ones are not run.
    """
    for command in commands:
        sys.stderr.write(f"+ {shlex.join(command)}\n")
        try:
            code = subprocess.run(command, check=False).returncode
        except FileNotFoundError as error:
            raise not_installed(command) from error
        if code:
            raise RealmError(
                "a command failed; the following ones were not run",
                where=shlex.join(command),
                found=f"exit code {code}",
            )


def ask(command: list[str]) -> subprocess.CompletedProcess[str]:
    """The result of a command that changes nothing.

    Raises:
      RealmError: it is not installed.
    """
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise not_installed(command) from error


def not_installed(command: Sequence[str]) -> RealmError:
    """The error for a command whose program is not found."""
    return RealmError("a program is not installed", where=command[0], fix=f"install {command[0]}")
