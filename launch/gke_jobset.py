r"""Both jobs on GKE: one JobSet with a replicated job that trains and one that builds.

Command:  python launch/gke_jobset.py --bucket=BUCKET --image=REGISTRY/realm-jax:TAG --name=realm \
              --trainer=v5e:8x8 --builders=4 --config=/app/experiments/realm_wikipedia.py --dry_run
Needs:    kubectl, a GKE cluster with JobSet and TPU node pools (XPK makes such ones, and takes the
          same manifest), an image with this package, its `tpu` extra and the config, a Kubernetes
          service account that may write to the bucket, and what the config names as runs/… and
          weights/… under gs://BUCKET/data/, which each pod copies into its working folder first

Without --dry_run the manifest goes to `kubectl apply`. JobSet makes the headless service by which
the trainer's hosts find the first of them. A job stopped with all saved (exit code 75), or without
its other hosts (76), restarts the set for nothing; any other failure counts towards --max_restarts.
Either way all jobs go on where they were.
"""

import argparse
import subprocess
import sys
from typing import Any

import yaml

from realm_jax.cli.arguments import natural
from realm_jax.cli.launching import (
    COORDINATOR_PORT,
    GO_ON,
    check_bucket,
    check_config,
    check_name,
    index_command,
    train_command,
)
from realm_jax.errors import InputError, RealmError
from realm_jax.planning.chips import Slice, slice_of

_DATA, _GCLOUD = "/data", "gcr.io/google.com/cloudsdktool/google-cloud-cli:stable"
_FETCH = ("gcloud", "storage", "rsync", "--recursive")
_OF_THE_SET = {"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/job-index']"}}
_NODE_POOL = "alpha.jobset.sigs.k8s.io/exclusive-topology"


class _Plain(yaml.SafeDumper):
    """Repeats what occurs twice; other readers of YAML know no references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def parse(argv: list[str]) -> argparse.Namespace:
    """Flags, checked.

    Raises:
      RealmError: a name, bucket, image, topology or config key that cannot be.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bucket", default="BUCKET", help="bucket that holds runs and corpora")
    parser.add_argument("--image", default="IMAGE", help="container image with this package")
    parser.add_argument("--name", default="realm", help="of the run and of the JobSet")
    parser.add_argument("--trainer", default="v5e:8x8", help="topology of the trainer's slice")
    parser.add_argument("--builders", type=natural, default=1, help="machines that build indexes")
    parser.add_argument(
        "--config", default="/app/experiments/realm_wikipedia.py", help="path in the image"
    )
    parser.add_argument("--service_account", default="realm", help="Kubernetes service account")
    parser.add_argument("--max_restarts", type=natural, default=20)
    parser.add_argument("--dry_run", action="store_true", help="print the manifest, apply nothing")
    found, extra = parser.parse_known_args(argv)
    found.extra = check_config(None, extra)
    check_name(found.name)
    found.place = slice_of(found.trainer, "--trainer")
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
    if place.hosts > 1:
        first = f"{options.name}-trainer-0-0.{options.name}:{COORDINATOR_PORT}"
        many = (first, place.hosts, "$(JOB_COMPLETION_INDEX)")
    literal = [argument.replace("$(", "$$(") for argument in options.extra]
    trainer = train_command(workdir, options.config, literal, many)
    builder = index_command(workdir, "builder-$(JOB_INDEX)")
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
                _replicated("trainer", 1, place, trainer, options),
                _replicated("builder", options.builders, machine, builder, options),
            ],
        },
    }


def _replicated(
    name: str, replicas: int, place: Slice, command: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """One Job for each slice, with one pod for each machine of it."""
    stopped = {"containerName": name, "operator": "In", "values": list(GO_ON)}
    job = {
        "completionMode": "Indexed",
        "parallelism": place.hosts,
        "completions": place.hosts,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": stopped}]},
        "template": {"spec": _pod(name, place, command, options)},
    }
    return {"name": name, "replicas": replicas, "template": {"spec": job}}


def _pod(
    name: str, place: Slice, command: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    chips = {"google.com/tpu": str(min(place.chips, place.chip.host_chips))}
    mounts = [{"name": "data", "mountPath": _DATA}]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": options.service_account,
        "terminationGracePeriodSeconds": 300,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": place.chip.gke,
            "cloud.google.com/gke-tpu-topology": place.shape,
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
                "env": [{"name": "JOB_INDEX", "valueFrom": _OF_THE_SET}],
                "workingDir": _DATA,
                "volumeMounts": mounts,
                "ports": [{"containerPort": COORDINATOR_PORT}],
                "resources": {"requests": chips, "limits": chips},
            }
        ],
    }


def main(argv: list[str]) -> int:
    """Prints or applies the manifest."""
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
                "a program is missing", where="kubectl", fix="install kubectl"
            ) from error
    except RealmError as error:
        sys.stderr.write(f"gke_jobset: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
