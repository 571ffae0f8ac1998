r"""Both jobs on Cloud TPU: one slice trains, single machines build, a bucket connects them.

Command:  python launch/cloud_tpu.py --project=PROJECT --bucket=BUCKET --zone=us-west4-a \
              --name=realm --trainer=v5e:8x8 --builders=4 \
              --config=experiments/realm_wikipedia.py --dry_run
Needs:    gcloud, logged in; a bucket (gcloud storage buckets create gs://BUCKET) with the folders
          runs/... and weights/... of the config under gs://BUCKET/data/
          (gcloud storage rsync --recursive FOLDER gs://BUCKET/data/FOLDER)

--dry_run prints the commands for a new run. Without it they are executed: the script requests
queued resources, waits for them, copies the code of HEAD and starts the jobs as services. A job
that exits with code 75 (stopped, progress saved) or 76 (another host was lost) is restarted by its
machine. After a preemption or an error, run the same command again: it requests the machines that
were lost and starts the jobs that do not run. Each builder is one machine with its own share of the
corpus; an index is published when all have embedded theirs.
"""

import argparse
import shlex
import subprocess
import sys
import time

from realm_jax.cli.arguments import natural
from realm_jax.cli.launching import (
    EXTRAS,
    RESTART_CODES,
    check_bucket,
    check_config,
    check_name,
    check_trainer,
    check_zone,
    index_command,
    last_step,
    not_installed,
    run_all,
    train_command,
)
from realm_jax.cli.scripts import script_parser
from realm_jax.errors import InputError, RealmError
from realm_jax.planning.chips import Slice

_PREFIX = "realm-jax"  # folder of the code on the machines
CODE = f"{_PREFIX}.tar.gz"
_QUEUED = ["gcloud", "compute", "tpus", "queued-resources"]
_POLL = 30.0  # seconds between queries of a queued resource
# A unit that failed stays known to systemd under its name until it is reset.
_IF_STOPPED = (
    "case $(systemctl is-active realm) in active|activating) ;;"
    " *) sudo systemctl reset-failed realm 2>/dev/null; {start} ;; esac"
)
_LOST = ("FAILED", "SUSPENDED")  # states of a queued resource that can be deleted only


def parse(argv: list[str]) -> argparse.Namespace:
    """Parses and checks the flags.

    Raises:
      RealmError: an invalid name, zone, bucket, topology or config.
    """
    parser = script_parser(__doc__)
    parser.add_argument("--project", default="PROJECT", help="Google Cloud project")
    parser.add_argument("--bucket", default="BUCKET", help="bucket for runs and corpora")
    parser.add_argument("--zone", default="", help="default: the first zone with this kind of TPU")
    parser.add_argument(
        "--name", default="realm", help="name of the run and prefix of its machines"
    )
    parser.add_argument("--trainer", default="v5e:8x8", help="topology of the trainer's slice")
    parser.add_argument(
        "--builders", type=natural, default=1, help="number of index-builder machines"
    )
    parser.add_argument(
        "--config", default="experiments/realm_wikipedia.py", help="recipe name or path in the code"
    )
    parser.add_argument("--spot", action="store_true", help="use spot TPUs, which can be preempted")
    parser.add_argument(
        "--dry_run", action="store_true", help="print the commands without running them"
    )
    found, extra = parser.parse_known_args(argv)
    found.extra = check_config(found.config, extra)
    check_name(found.name)
    found.place = check_trainer(found.trainer)
    found.zone = check_zone(found.zone or found.place.chip.zones[0], found.place)
    if found.dry_run and found.bucket == "BUCKET":
        found.bucket = "gs://BUCKET"
    else:
        found.bucket = check_bucket(found.bucket)
    if found.project == "PROJECT" and not found.dry_run:
        raise InputError(
            "no project", where="--project", expected="the ID of a Google Cloud project"
        )
    return found


def machines(options: argparse.Namespace) -> dict[str, Slice]:
    """Machine name -> slice: the trainer's, and one single-machine slice per builder."""
    place = options.place
    smallest = Slice(place.kind, place.chip.shapes[0])
    builders = {f"{options.name}-builder-{number}": smallest for number in range(options.builders)}
    return {f"{options.name}-trainer": place, **builders}


def where(options: argparse.Namespace) -> list[str]:
    """Flags of every command about machines."""
    return [f"--project={options.project}", f"--zone={options.zone}"]


def look(options: argparse.Namespace) -> list[str]:
    """The command that fails if the bucket or its data are missing, before anything is paid for."""
    return ["gcloud", "storage", "ls", f"{options.bucket}/data/"]


def request(options: argparse.Namespace, name: str) -> list[str]:
    """The command that requests a machine or slice."""
    place = machines(options)[name]
    return (
        [*_QUEUED, "create", name, *where(options)]
        + [f"--node-id={name}", f"--accelerator-type={place.accelerator_type}"]
        + [f"--runtime-version={place.chip.runtime}"]
        + ["--scopes=https://www.googleapis.com/auth/cloud-platform"]
        + (["--spot"] if options.spot else [])
    )


def delete(options: argparse.Namespace, name: str) -> list[str]:
    """The command that deletes a queued resource and its machines."""
    return [*_QUEUED, "delete", name, *where(options), "--force", "--quiet"]


def describe(options: argparse.Namespace, name: str) -> list[str]:
    """The command that prints the state of a queued resource."""
    return [*_QUEUED, "describe", name, *where(options), "--format=value(state.state)"]


def state(options: argparse.Namespace, name: str) -> str | None:
    """The state of a queued resource; None if it does not exist.

    Raises:
      RealmError: gcloud is not installed, or cannot tell.
    """
    command = describe(options, name)
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise not_installed(command) from error
    if run.returncode and "NOT_FOUND" not in run.stderr:
        raise RealmError(
            "the state of a machine is unknown",
            where=shlex.join(command),
            found=run.stderr.strip() or f"exit code {run.returncode}",
        )
    return None if run.returncode else run.stdout.strip()


def missing(options: argparse.Namespace) -> list[list[str]]:
    """Commands that request the machines that do not exist or were lost."""
    commands = []
    for name in machines(options):
        found = state(options, name)
        commands += [delete(options, name)] if found in _LOST else []
        commands += [request(options, name)] if found is None or found in _LOST else []
    return commands


def start(options: argparse.Namespace) -> list[list[str]]:
    """Commands that copy the code to all machines and start the jobs that do not run."""
    commands = [["git", "archive", f"--prefix={_PREFIX}/", f"--output={CODE}", "HEAD"]]
    tpu = ["gcloud", "compute", "tpus", "tpu-vm"]
    for name in machines(options):
        everywhere = [*where(options), "--worker=all"]
        commands += [[*tpu, "scp", CODE, f"{name}:", *everywhere]]
        script = _IF_STOPPED.format(start=f"{install(options)} && {service(options, name)}")
        commands += [[*tpu, "ssh", name, *everywhere, f"--command={script}"]]
    return commands


def install(options: argparse.Namespace) -> str:
    """Shell command that installs the code and copies the data of the config."""
    return (
        f"tar -xzf {CODE} && sudo apt-get install -y python3.11-venv"
        f" && python3.11 -m venv venv && venv/bin/pip install './{_PREFIX}[{EXTRAS}]'"
        f" && gcloud storage rsync --recursive {options.bucket}/data {_PREFIX}"
    )


def service(options: argparse.Namespace, name: str) -> str:
    """Shell command that starts a job as a service; some exit codes restart it."""
    workdir = f"{options.bucket}/{options.name}"
    number = name.removeprefix(f"{options.name}-builder-")
    last = last_step(options.config, options.extra)
    command = index_command(workdir, number, options.builders, last)
    if name.endswith("-trainer"):
        many = ["--coordinator=auto"] if options.place.hosts > 1 else []
        command = train_command(workdir, options.config, [*options.extra, *many])
    unit = f"--unit=realm --uid=$USER --working-directory=$HOME/{_PREFIX}"
    codes = " ".join([*map(str, RESTART_CODES), "SIGABRT"])  # JAX aborts if process 0 is lost
    restart = f"--property='RestartForceExitStatus={codes}' --property=RestartSec=10"
    return f"sudo systemd-run {unit} {restart} $HOME/venv/bin/{shlex.join(command)}"


def wait(options: argparse.Namespace) -> None:
    """Waits until all machines are active.

    Raises:
      RealmError: a request failed, or a machine was lost.
    """
    for name in machines(options):
        while (found := state(options, name)) != "ACTIVE":
            if found is None or found in _LOST:
                raise RealmError(
                    "a queued resource is not available",
                    where=name,
                    expected="ACTIVE",
                    found=found or "deleted",
                    fix="run the same command again, which requests it again. Before you try "
                    f"another --zone, delete {', '.join(machines(options))}: "
                    f"{shlex.join(delete(options, name))}",
                )
            sys.stderr.write(f"{name}: {found.lower()}\n")
            time.sleep(_POLL)


def main(argv: list[str]) -> int:
    """Prints or runs the commands; returns the exit code."""
    try:
        options = parse(argv)
        if options.dry_run:
            asked = [request(options, name) for name in machines(options)]
            waiting = [describe(options, name) for name in machines(options)]
            for command in [look(options), *asked, *waiting, *start(options)]:
                sys.stdout.write(shlex.join(command) + "\n")
            return 0
        run_all([look(options)])
        run_all(missing(options))
        wait(options)
        run_all(start(options))
    except RealmError as error:
        sys.stderr.write(f"cloud_tpu: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
