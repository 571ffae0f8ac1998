"""The export of a finished run: its networks, and the index on which they were fine-tuned."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from realm_jax.artifacts.params import hash_of, load_parameters, save_parameters
from realm_jax.artifacts.required import index_step_of_export
from realm_jax.artifacts.run_config import newest_config
from realm_jax.errors import InputError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import CONFIG, PARAMETERS, RunDir, step_name

KIND = "export"


@dataclass(frozen=True)
class Export:
    """A verified export.

    Attributes:
      step: its number; see `publish_export`.
      index_step: step of the published index that belongs to it.
      networks: network name -> parameters: `embedder`, `reader`, and after fine-tuning
        `question_embedder`, `question_reader` and `span_head`.
      config_json: config of the run.
    """

    step: int
    index_step: int
    networks: dict[str, Any]
    config_json: str


def publish_export(
    run: RunDir,
    step: int,
    index_step: int,
    networks: dict[str, Any],
    config_json: str,
    still_allowed: Callable[[], None] = lambda: None,
) -> int:
    """Publishes the networks, unless the newest export has them already, with the same index.

    The newest export may have more networks: repeating the command that pre-trained a run keeps
    what it was fine-tuned to.

    Args:
      run: the run folder.
      step: number of pre-training and fine-tuning steps. It is the number of the export, unless an
        export with this or a higher number exists: then the next number, as readers use the newest.
      index_step: step of the published index that belongs to the networks.
      networks: see `Export`; arrays on the host.
      config_json: config of the run.
      still_allowed: see `commit.publish`.

    Returns:
      The number of the export that has the networks.
    """
    hashes = _hashes(networks)
    newest = commit.latest(run.export)
    if newest is not None and newest >= step:
        folder = run.export / step_name(newest)
        before = commit.read_manifest(folder) or {}
        if before.get("index_step") == index_step and hashes.items() <= _published(folder).items():
            return newest
        step = newest + 1

    def write(folder: epath.Path) -> None:
        save_parameters(folder / PARAMETERS, networks)
        files.write_bytes(folder / CONFIG, config_json.encode())

    fields = {
        "kind": KIND,
        "index_step": index_step,
        "networks": sorted(networks),
        "network_hashes": hashes,
    }
    commit.publish(run.export, step, write, fields, still_allowed)
    return step


def _hashes(networks: dict[str, Any]) -> dict[str, str]:
    return {name: hash_of(network) for name, network in networks.items()}


def _published(folder: epath.Path) -> dict[str, str]:
    """Hash of each network of an export; earlier versions did not record it."""
    recorded = (commit.read_manifest(folder) or {}).get("network_hashes")
    return recorded or _hashes(load_parameters(folder / PARAMETERS))


def read_export(run: RunDir) -> Export:
    """The newest export of a run.

    Raises:
      InputError: the run has no export yet.
      DamageError: a file is damaged; the error names it.
    """
    step = commit.latest(run.export)
    if step is None:
        raise no_export(run)
    folder = run.export / step_name(step)
    with integrity.verified(folder, KIND, index_step=int) as (copy, manifest):
        return Export(
            step=step,
            index_step=manifest["index_step"],
            networks=load_parameters(copy / PARAMETERS),
            config_json=(copy / CONFIG).read_text(),
        )


def no_export(run: RunDir) -> InputError:
    """The error for a run without an export; its fix is the command that starts or finishes it.

    Raises:
      ConfigError: the config of the run is damaged.
    """
    config = newest_config(run) if run.config.exists() else None
    if config is not None:
        found = "a run that is not finished" if publishes(config) else "a run without stage realm"
        fix = f"finish it: {finishing_command(run, config)}"
    elif run.root.exists() and not run.root.is_dir():
        found, fix = "a file", "give the folder of a finished run"
    else:
        found, fix = "no run", f"start one there: {_run_command(run)} --config=experiments/NAME.py"
    return InputError(
        "the run has no trained networks to answer with yet",
        where=run.export if run.config.exists() else run.root,
        expected="the export of a finished run",
        found=found,
        fix=fix,
    )


def publishes(config: ConfigDict) -> bool:
    """Whether a run publishes snapshots and an export; one of ICT or the reader only does not."""
    return config.stages.realm.steps > 0 or config.stages.realm.publish_start


def finishing_command(run: RunDir, config: ConfigDict) -> str:
    """The command after which a run has an export."""
    if publishes(config):
        return _run_command(run)
    return (
        f"{_run_command(run)} --config.stages.realm.steps=N, or for its networks as they are "
        "--config.stages.realm.publish_start=true"
    )


def _run_command(run: RunDir) -> str:
    return f"realm run --workdir={shlex.quote(str(run.workdir))}"


def missing_index(run: RunDir) -> epath.Path | None:
    """The folder of the index of the newest export, if that index is missing; else None."""
    step = index_step_of_export(run)
    if step is None:
        return None
    folder = run.published_index / step_name(step)
    return None if commit.is_published(folder) else folder
