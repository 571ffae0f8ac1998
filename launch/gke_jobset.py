r"""Both jobs on GKE: a JobSet with one replicated job for training and one for index building.

Command:  python launch/gke_jobset.py --bucket=BUCKET --image=REGISTRY/realm-jax:TAG --name=realm \
              --trainer=v5e:8x8 --builders=4 --config=/app/experiments/realm_wikipedia.py --dry_run
Needs:    kubectl; a GKE cluster with JobSet and TPU node pools of machine types with four chips
          (-4t; XPK creates such clusters and accepts this manifest); an image with the config and
          `pip install '.[tpu,gs]'`; a Kubernetes service account with write access to the bucket;
          the folders runs/... and weights/... of the config under gs://BUCKET/data/. Each pod
          first copies them into its working folder

--dry_run prints the manifest. Without it the manifest is passed to `kubectl apply`. The trainer's
hosts find host 0 through the headless service of the JobSet. If a job exits with code 75 (stopped,
progress saved) or 76 (another host was lost), the set restarts without using up --max_restarts. Any
other failure counts. In both cases all jobs resume.
"""

import argparse
import subprocess
import sys
from typing import Any

import yaml

from realm_jax.cli.arguments import natural
from realm_jax.cli.launching import (
    COORDINATOR_PORT,
    RESTART_CODES,
    check_bucket,
    check_config,
    check_name,
    check_trainer,
    index_command,
    last_step,
    train_command,
)
from realm_jax.cli.scripts import script_parser
from realm_jax.errors import InputError, RealmError
from realm_jax.planning.chips import Slice

_DATA, _GCLOUD = "/data", "gcr.io/google.com/cloudsdktool/google-cloud-cli:stable"
_FETCH = ("gcloud", "storage", "rsync", "--recursive")
_NODE_POOL = "alpha.jobset.sigs.k8s.io/exclusive-topology"


class _Plain(yaml.SafeDumper):
    """Writes repeated values in full; some YAML readers do not support references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def parse(argv: list[str]) -> argparse.Namespace:
    """Parses and checks the flags.

    Raises:
      RealmError: an invalid name, bucket, image, topology or config key.
    """
    parser = script_parser(__doc__)
    parser.add_argument("--bucket", default="BUCKET", help="bucket for runs and corpora")
    parser.add_argument("--image", default="IMAGE", help="container image with this package")
    parser.add_argument("--name", default="realm", help="name of the run and of the JobSet")
    parser.add_argument("--trainer", default="v5e:8x8", help="topology of the trainer's slice")
    parser.add_argument(
        "--builders", type=natural, default=1, help="number of index-builder machines"
    )
    parser.add_argument(
        "--config",
        default="/app/experiments/realm_wikipedia.py",
        help="recipe name or path in the image",
    )
    parser.add_argument("--service_account", default="realm", help="Kubernetes service account")
    parser.add_argument("--max_restarts", type=natural, default=20, help="restarts after failures")
    parser.add_argument(
        "--dry_run", action="store_true", help="print the manifest without applying it"
    )
    found, extra = parser.parse_known_args(argv)
    found.extra = check_config(None, extra)
    check_name(found.name)
    found.place = check_trainer(found.trainer)
    if found.dry_run and found.bucket == "BUCKET":
        found.bucket = "gs://BUCKET"
    else:
        found.bucket = check_bucket(found.bucket)
    if found.image == "IMAGE" and not found.dry_run:
        raise InputError("no image", where="--image", expected="REGISTRY/NAME:TAG")
    return found


def jobset(options: argparse.Namespace) -> dict[str, Any]:
    """The manifest."""
    workdir = f"{options.bucket}/{options.name}"
    place = options.place
    many = None
    if place.nodes > 1:
        first = f"{options.name}-trainer-0-0.{options.name}:{COORDINATOR_PORT}"
        many = (first, place.nodes, "$(JOB_COMPLETION_INDEX)")
    literal = [argument.replace("$(", "$$(") for argument in options.extra]
    trainer = train_command(workdir, options.config, literal, many)
    last = last_step(options.config, options.extra)
    builder = index_command(workdir, "$(JOB_COMPLETION_INDEX)", options.builders, last)
    machine = Slice(place.kind, place.chip.shapes[0])
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": options.name,
            "annotations": {_NODE_POOL: "cloud.google.com/gke-nodepool"},
        },
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": options.name},
            "successPolicy": {"operator": "All"},
            "failurePolicy": {
                "maxRestarts": options.max_restarts,
                "rules": [
                    {
                        "name": "stopped",
                        "action": "RestartJobSetAndIgnoreMaxRestarts",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                _replicated("trainer", place.nodes, place, trainer, options),
                *(
                    [_replicated("builder", options.builders, machine, builder, options)]
                    if options.builders
                    else []
                ),
            ],
        },
    }


def _replicated(
    name: str, pods: int, place: Slice, command: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """One Job: a pod for each host of the trainer's slice, or for each builder's machine."""
    stopped = {"containerName": name, "operator": "In", "values": list(RESTART_CODES)}
    job = {
        "completionMode": "Indexed",
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": stopped}]},
        "template": {"spec": _pod(name, place, command, options)},
    }
    return {"name": name, "replicas": 1, "template": {"spec": job}}


def _pod(
    name: str, place: Slice, command: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    chips = {"google.com/tpu": str(place.chip.node_chips)}
    mounts = [{"name": "data", "mountPath": _DATA}]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": options.service_account,
        "terminationGracePeriodSeconds": 300,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": place.chip.gke,
            "cloud.google.com/gke-tpu-topology": place.shape,
            "cloud.google.com/gke-accelerator-count": str(place.chip.node_chips),
        },
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [
            {
                "name": "data",
                "image": _GCLOUD,
                "command": [*_FETCH, f"{options.bucket}/data", _DATA],
                "volumeMounts": mounts,
            }
        ],
        "containers": [
            {
                "name": name,
                "image": options.image,
                "command": command,
                "workingDir": _DATA,
                "volumeMounts": mounts,
                "ports": [{"containerPort": COORDINATOR_PORT}],
                "resources": {"requests": chips, "limits": chips},
            }
        ],
    }


def main(argv: list[str]) -> int:
    """Prints or applies the manifest; returns the exit code."""
    try:
        options = parse(argv)
        manifest = yaml.dump(jobset(options), Dumper=_Plain, sort_keys=False)
        if options.dry_run:
            sys.stdout.write(manifest)
            return 0
        try:
            apply = ["kubectl", "apply", "-f", "-"]
            return subprocess.run(apply, input=manifest, text=True, check=False).returncode
        except FileNotFoundError as error:
            raise RealmError(
                "a program is not installed", where="kubectl", fix="install kubectl"
            ) from error
    except RealmError as error:
        sys.stderr.write(f"gke_jobset: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
