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

Machines are billed until they are deleted, also after the jobs have ended. --delete deletes all
machines of --name in --zone; Ctrl-C and errors print the command.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from realm_jax.cli.arguments import natural
from realm_jax.cli.exit_codes import DONE, ERROR, STOPPED
from realm_jax.cli.launching import (
    EXTRAS,
    RESTART_CODES,
    ask,
    check_bucket,
    check_config,
    check_in_head,
    check_name,
    check_overrides,
    check_trainer,
    check_zone,
    config_file,
    index_command,
    last_step,
    run_all,
    train_command,
)
from realm_jax.cli.scripts import script_parser
from realm_jax.errors import InputError, RealmError
from realm_jax.planning.chips import Slice

ROOT = Path(__file__).resolve().parents[1]  # of the repository
_PREFIX = "realm-jax"  # folder of the code on the machines
CODE = f"{_PREFIX}.tar.gz"
_QUEUED = ["gcloud", "compute", "tpus", "queued-resources"]
_POLL = 30.0  # seconds between queries of a queued resource
_RETRIES = 20  # of a query that fails while the script waits: ten minutes
# A unit that failed stays known to systemd under its name until it is reset.
_IF_STOPPED = (
    "case $(systemctl is-active realm) in active|activating) ;;"
    " *) sudo systemctl reset-failed realm 2>/dev/null; {start} ;; esac"
)
_LOST = ("FAILED", "SUSPENDED")  # states of a queued resource that can be deleted only


def parse(argv: list[str]) -> argparse.Namespace:
    """Parses and checks the flags; with --delete, those that name machines.

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
        "--config",
        default="experiments/realm_wikipedia.py",
        help="recipe name, or path of a committed file in the repository",
    )
    parser.add_argument("--spot", action="store_true", help="use spot TPUs, which can be preempted")
    parser.add_argument(
        "--dry_run", action="store_true", help="print the commands without running them"
    )
    parser.add_argument(
        "--delete", action="store_true", help="delete all machines of --name; start nothing"
    )
    found, extra = parser.parse_known_args(argv)
    check_name(found.name)
    found.place = check_trainer(found.trainer)
    found.zone = check_zone(found.zone or found.place.chip.zones[0], found.place)
    if found.project == "PROJECT" and not found.dry_run:
        raise InputError(
            "no project", where="--project", expected="the ID of a Google Cloud project"
        )
    if found.delete:
        check_overrides(extra)
        return found
    given = found.bucket != "BUCKET" or not found.dry_run
    found.bucket = check_bucket(found.bucket) if given else "gs://BUCKET"
    file = config_file(ROOT, found.config)
    found.extra = check_config(str(file), extra)
    found.last_step = last_step(str(file), found.extra)
    found.config = check_in_head(ROOT, file)
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


def unknown(command: list[str], run: subprocess.CompletedProcess[str]) -> RealmError:
    """The error for a query of machines that failed."""
    return RealmError(
        "the state of the machines is unknown",
        where=shlex.join(command),
        found=run.stderr.strip() or f"exit code {run.returncode}",
    )


def state(options: argparse.Namespace, name: str) -> str | None:
    """The state of a queued resource; None if it does not exist.

    Raises:
      RealmError: gcloud is not installed, or cannot tell.
    """
    command = describe(options, name)
    run = ask(command)
    if run.returncode and "NOT_FOUND" not in run.stderr:
        raise unknown(command, run)
    return None if run.returncode else run.stdout.strip()


def listing(options: argparse.Namespace) -> list[str]:
    """The command that prints the names of all queued resources of the zone."""
    return [*_QUEUED, "list", *where(options), "--format=value(name.basename())"]


def deletions(options: argparse.Namespace) -> list[list[str]]:
    """Commands that delete the machines of this name, for any number of builders.

    Raises:
      RealmError: gcloud is not installed, or cannot list the machines.
    """
    command = listing(options)
    run = ask(command)
    if run.returncode:
        raise unknown(command, run)
    ours = re.compile(rf"{re.escape(options.name)}-(trainer|builder-\d+)")
    return [delete(options, name) for name in run.stdout.split() if ours.fullmatch(name)]


def billed(options: argparse.Namespace) -> str:
    """A line with the machines that may exist, and the command that deletes them."""
    same = [*where(options), f"--name={options.name}", f"--trainer={options.trainer}"]
    command = shlex.join(["python", os.path.relpath(__file__), *same, "--delete"])
    names = ", ".join(machines(options))
    return f"requested machines are billed until you delete them ({names}): {command}\n"


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
    archive = ["archive", f"--prefix={_PREFIX}/", f"--output={Path.cwd() / CODE}", "HEAD"]
    commands = [["git", "-C", str(ROOT), *archive]]
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
    command = index_command(workdir, number, options.builders, options.last_step)
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
      RealmError: a request failed, a machine was lost, or gcloud cannot tell for ten minutes.
    """
    for name in machines(options):
        while (found := patient_state(options, name)) != "ACTIVE":
            if found is None or found in _LOST:
                raise RealmError(
                    "a queued resource is not available",
                    where=name,
                    expected="ACTIVE",
                    found=found or "deleted",
                    fix="run the same command again, which requests it again. Before you try "
                    "another --zone, run it with --delete",
                )
            sys.stderr.write(f"{name}: {found.lower()}\n")
            time.sleep(_POLL)


def patient_state(options: argparse.Namespace, name: str) -> str | None:
    """`state`; a query that fails is repeated, because requested machines become active anyway."""
    for _ in range(_RETRIES):
        try:
            return state(options, name)
        except RealmError as error:
            sys.stderr.write(f"{error}\n{name}: asked again in {_POLL:.0f} s\n")
            time.sleep(_POLL)
    return state(options, name)


def launch(options: argparse.Namespace) -> int:
    """Requests the machines and starts the jobs; returns the exit code."""
    try:
        run_all([look(options)])
        run_all(missing(options))
        wait(options)
        run_all(start(options))
    except RealmError as error:
        sys.stderr.write(f"cloud_tpu: {error}\n{billed(options)}")
        return ERROR
    except KeyboardInterrupt:
        sys.stderr.write(f"cloud_tpu: stopped; {billed(options)}")
        return STOPPED
    sys.stderr.write(f"the jobs run; {billed(options)}")
    return DONE


def main(argv: list[str]) -> int:
    """Prints or runs the commands; returns the exit code."""
    try:
        options = parse(argv)
        names = machines(options)
        if options.delete and options.dry_run:
            printed = [listing(options), *(delete(options, name) for name in names)]
        elif options.delete:
            run_all(deletions(options))
            return DONE
        elif options.dry_run:
            asked = [request(options, name) for name in names]
            waiting = [describe(options, name) for name in names]
            printed = [look(options), *asked, *waiting, *start(options)]
        else:
            return launch(options)
    except RealmError as error:
        sys.stderr.write(f"cloud_tpu: {error}\n")
        return ERROR
    sys.stdout.write("".join(f"{shlex.join(command)}\n" for command in printed))
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
