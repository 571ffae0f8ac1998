"""The published tagger, a verified folder that `realm tag annotate` and `realm tag eval` read."""

import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from etils import epath

from realm_jax.artifacts.params import load_parameters, save_parameters
from realm_jax.errors import InputError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import CONFIG, PARAMETERS, VOCABULARY, RunDir, step_name

KIND = "tagger"


@dataclass(frozen=True)
class PublishedTagger:
    """A verified tagger.

    Attributes:
      folder: the published folder; it also contains the vocabulary (`vocab.txt`).
      identity: checksum of parameters, config and vocabulary.
      parameters: of the network `tagger`.
      config_json: config of the run that trained the tagger.
    """

    folder: epath.Path
    identity: str
    parameters: dict[str, Any]
    config_json: str


def publish_tagger(
    run: RunDir,
    step: int,
    parameters: dict[str, Any],
    config_json: str,
    vocabulary: bytes,
    still_allowed: Callable[[], None] = lambda: None,
) -> None:
    """Publishes the tagger of a run at `step`; `vocabulary` is the content of its vocab.txt.

    `still_allowed`: see `commit.publish`.
    """

    def write(folder: epath.Path) -> None:
        save_parameters(folder / PARAMETERS, parameters)
        files.write_bytes(folder / CONFIG, config_json.encode())
        files.write_bytes(folder / VOCABULARY, vocabulary)

    commit.publish(run.tagger, step, write, {"kind": KIND}, still_allowed)


def read_tagger(run: RunDir) -> PublishedTagger:
    """Reads and verifies the newest tagger of a run.

    Raises:
      InputError: the run has not published a tagger.
      DamageError: a file is damaged; the message names it.
    """
    step = commit.latest(run.tagger)
    if step is None:
        raise InputError(
            "no tagger here",
            where=run.tagger,
            expected="the workdir of a finished `realm tag train`",
            fix=f"realm tag train --input=FILE --workdir={shlex.quote(str(run.workdir))}",
        )
    folder = run.tagger / step_name(step)
    with integrity.verified(folder, KIND) as (copy, manifest):
        return PublishedTagger(
            folder=folder,
            identity=_identity(manifest["files"]),
            parameters=load_parameters(copy / PARAMETERS),
            config_json=(copy / CONFIG).read_text(),
        )


def _identity(table: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
