"""What the scripts under `launch/` share: the commands of both jobs, and names that clouds take."""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from realm_jax import config as config_lib
from realm_jax.cli.exit_codes import PEER_GONE, STOPPED
from realm_jax.errors import InputError, RealmError
from realm_jax.planning.chips import Slice

COORDINATOR_PORT = 8476
GO_ON = (STOPPED, PEER_GONE)  # exit codes after which the same command goes on
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_BUCKET = re.compile(r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]")


def train_command(
    workdir: str, config: str, extra: Sequence[str], many: tuple[str, int, str] | None = None
) -> list[str]:
    """`realm train`, perhaps as one process of many.

    Args:
      workdir: run folder or bucket address.
      config: experiments/NAME.py.
      extra: overrides, `--config.a.b=value`.
      many: coordinator's HOST:PORT, number of processes, this one's number (or what stands for it).
    """
    command = ["realm", "train", f"--workdir={workdir}", f"--config={config}", *extra]
    if many is not None:
        coordinator, processes, process = many
        command += [f"--coordinator={coordinator}", f"--processes={processes}"]
        command += [f"--process={process}"]
    return command


def index_command(workdir: str, worker: str) -> list[str]:
    """`realm index`; any number of them, each with a name of its own, share the work of one run."""
    return ["realm", "index", f"--workdir={workdir}", f"--worker={worker}"]


def check_overrides(extra: Sequence[str]) -> list[str]:
    """Arguments that are handed to `realm train` as they are.

    Raises:
      InputError: one that is no override of a config key.
    """
    for argument in extra:
        if not re.fullmatch(r"--config\.[a-z_.0-9]+=.*", argument, re.DOTALL):
            raise InputError(
                "unknown argument", expected="overrides, --config.KEY=VALUE", found=argument
            )
    return list(extra)


def check_config(path: str | None, extra: Sequence[str]) -> list[str]:
    """Overrides that make a config, with the file of it.

    Args:
      path: experiments/NAME.py; None where it lies on another machine: keys alone are checked.
      extra: see `check_overrides`.

    Raises:
      InputError: an argument that is no override.
      ConfigError: no such file, no such key, or a value that cannot be.
    """
    overrides = check_overrides(extra)
    values = dict(one.removeprefix("--config.").split("=", 1) for one in overrides)
    if path is not None:
        config_lib.load(path, values)
    else:
        any_config = config_lib.default()
        for key, text in values.items():
            config_lib.set_key(any_config, key, text)
    return overrides


def check_name(name: str) -> str:
    """A name that Cloud TPU and Kubernetes take, hosts' names made of it included.

    Raises:
      InputError: another one.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            "the name cannot be used in a cloud",
            where="--name",
            expected="a letter, then letters, digits and '-', at most 40, all lower case",
            found=name,
        )
    return name


def check_bucket(bucket: str) -> str:
    """`gs://NAME` of NAME or `gs://NAME`.

    Raises:
      InputError: no name of a bucket.
    """
    name = bucket.removeprefix("gs://").rstrip("/")
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise InputError(
            "no bucket is called so",
            where="--bucket",
            expected="3 to 63 lower-case letters, digits, '-', '_' and '.'",
            found=bucket,
        )
    return f"gs://{name}"


def check_zone(zone: str, place: Slice) -> str:
    """A zone that has chips of this kind.

    Raises:
      InputError: another one; lists those.
    """
    if zone not in place.chip.zones:
        raise InputError(
            f"Cloud TPU has no {place.kind} there",
            where="--zone",
            expected=" or ".join(place.chip.zones),
            found=zone,
        )
    return zone


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Runs commands one after the other.

    Raises:
      RealmError: one that is not installed, or that fails; those after it are not run.
    """
    for command in commands:
        sys.stderr.write(f"+ {shlex.join(command)}\n")
        try:
            code = subprocess.run(command, check=False).returncode
        except FileNotFoundError as error:
            raise RealmError(
                "a program is missing", where=command[0], fix=f"install {command[0]}"
            ) from error
        if code:
            raise RealmError(
                "a command failed; those after it were not run",
                where=shlex.join(command),
                found=f"exit code {code}",
            )
