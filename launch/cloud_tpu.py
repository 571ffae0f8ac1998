r"""Both jobs on Cloud TPU: one slice trains, single machines build, a bucket connects them.

Command:  python launch/cloud_tpu.py --project=PROJECT --bucket=BUCKET --zone=us-west4-a \
              --name=realm --trainer=v5e:8x8 --builders=4 \
              --config=experiments/realm_wikipedia.py --dry_run
Needs:    gcloud, logged in; the folders runs/... and weights/... of the config under
          gs://BUCKET/data/ (gcloud storage rsync --recursive FOLDER gs://BUCKET/data/FOLDER)

--dry_run prints the commands. Without it they are executed: the script requests queued resources,
waits for them, copies the code of HEAD and starts the jobs as services. A job that exits with code
75 (stopped, progress saved) or 76 (another host was lost) is restarted by its machine. After a
preemption, run the same command with --again, which does not create the bucket. Each builder is one
machine with its own share of the corpus; an index is published when all have embedded theirs.
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
    run_all,
    train_command,
)
from realm_jax.cli.scripts import script_parser
from realm_jax.errors import InputError, RealmError
from realm_jax.planning.chips import Slice

CODE = "realm-jax.tar.gz"
_POLL = 30.0  # seconds between queries of a queued resource
_WORKER = (
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number"
)
_FAILED = ("FAILED", "SUSPENDED", "SUSPENDING")


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
    parser.add_argument("--again", action="store_true", help="the bucket already exists")
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


def ask(options: argparse.Namespace) -> list[list[str]]:
    """Commands that create the bucket and request the machines."""
    region = options.zone.rpartition("-")[0]
    bucket = ["gcloud", "storage", "buckets", "create", options.bucket]
    bucket += [f"--project={options.project}", f"--location={region}"]
    commands = [] if options.again else [bucket]
    for name, place in machines(options).items():
        commands += [
            ["gcloud", "compute", "tpus", "queued-resources", "create", name, *where(options)]
            + [f"--node-id={name}", f"--accelerator-type={place.accelerator_type}"]
            + [f"--runtime-version={place.chip.runtime}"]
            + ["--scopes=https://www.googleapis.com/auth/cloud-platform"]
            + (["--spot"] if options.spot else [])
        ]
    return commands


def state(options: argparse.Namespace, name: str) -> list[str]:
    """The command that prints the state of a queued resource."""
    command = ["gcloud", "compute", "tpus", "queued-resources", "describe", name]
    return [*command, *where(options), "--format=value(state.state)"]


def start(options: argparse.Namespace) -> list[list[str]]:
    """Commands that copy the code to all machines and start the jobs."""
    prefix = CODE.removesuffix(".tar.gz")
    commands = [["git", "archive", f"--prefix={prefix}/", f"--output={CODE}", "HEAD"]]
    install = (
        f"tar -xzf {CODE} && sudo apt-get install -y python3.11-venv"
        f" && python3.11 -m venv venv && venv/bin/pip install './{prefix}[{EXTRAS}]'"
        f" && gcloud storage rsync --recursive {options.bucket}/data {prefix}"
    )
    tpu = ["gcloud", "compute", "tpus", "tpu-vm"]
    for name in machines(options):
        everywhere = [*where(options), "--worker=all"]
        commands += [[*tpu, "scp", CODE, f"{name}:", *everywhere]]
        commands += [[*tpu, "ssh", name, *everywhere, f"--command={install}"]]
        commands += [[*tpu, "ssh", name, *everywhere, f"--command={service(options, name)}"]]
    return commands


def service(options: argparse.Namespace, name: str) -> str:
    """Shell command that starts a job as a service; some exit codes restart it."""
    workdir = f"{options.bucket}/{options.name}"
    number = name.removeprefix(f"{options.name}-builder-")
    last = last_step(options.config, options.extra)
    command = index_command(workdir, number, options.builders, last)
    if name.endswith("-trainer"):
        many = ["--coordinator=auto"] if options.place.hosts > 1 else []
        command = train_command(workdir, options.config, [*options.extra, *many])
    unit = "--unit=realm --uid=$USER --working-directory=$HOME/realm-jax"
    codes = " ".join([*map(str, RESTART_CODES), "SIGABRT"])  # JAX aborts if process 0 is lost
    restart = f"--property='RestartForceExitStatus={codes}' --property=RestartSec=10"
    return f"sudo systemd-run {unit} {restart} $HOME/venv/bin/{shlex.join(command)}"


def wait(options: argparse.Namespace) -> None:
    """Waits until all machines are active.

    Raises:
      RealmError: a request failed.
    """
    for name in machines(options):
        while True:
            run = subprocess.run(state(options, name), capture_output=True, text=True, check=False)
            found = run.stdout.strip()
            if found == "ACTIVE":
                break
            if found in _FAILED or run.returncode:
                raise RealmError(
                    "a queued resource is not available",
                    where=name,
                    expected="ACTIVE",
                    found=found or run.stderr.strip(),
                    fix="delete it (gcloud compute tpus queued-resources delete), try another zone",
                )
            sys.stderr.write(f"{name}: {found.lower()}\n")
            time.sleep(_POLL)


def main(argv: list[str]) -> int:
    """Prints or runs the commands; returns the exit code."""
    try:
        options = parse(argv)
        if options.dry_run:
            waiting = [state(options, name) for name in machines(options)]
            for command in ask(options) + waiting + start(options):
                sys.stdout.write(shlex.join(command) + "\n")
            return 0
        run_all(ask(options))
        wait(options)
        run_all(start(options))
    except RealmError as error:
        sys.stderr.write(f"cloud_tpu: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
