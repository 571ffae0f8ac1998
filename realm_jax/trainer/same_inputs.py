"""The processes of a trainer must be started with the same config and the same files."""

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import config_paths
from realm_jax.data.open_qa import questions_hash
from realm_jax.errors import MismatchError
from realm_jax.storage import sealed
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.inputs import Inputs


def inputs_of(config: ConfigDict, inputs: Inputs) -> dict[str, Any]:
    """What all processes must have in common; JSON.

    Paths may differ, because each machine may have the files elsewhere; hashes stand for them.
    """
    keys = [key for key in config_lib.keys(config) if key not in config_paths.KEYS]
    files = {
        "knowledge corpus": inputs.knowledge.corpus_hash,
        "pre-training corpus": inputs.text.store.corpus_hash,
        "held-out corpus": inputs.held_out.store.corpus_hash,
        "spans": sealed.checksum(inputs.text.spans.manifest["files"]),
        "held-out spans": sealed.checksum(inputs.held_out.spans.manifest["files"]),
        "questions": questions_hash(inputs.questions),
    }
    return {f"config.{key}": config_lib.value_of(config, key) for key in keys} | files


def require_same_inputs(everyone: Sequence[dict[str, Any]], run: RunDir) -> None:
    """Checks the `inputs_of` of all processes, in the order of their numbers.

    Raises:
      MismatchError: a process differs from process 0; the error names the first difference.
    """
    for process, theirs in enumerate(everyone):
        for what, expected in everyone[0].items():
            if theirs.get(what) != expected:
                raise MismatchError(
                    f"process {process} was started with another {what} than process 0",
                    where=run.workdir,
                    expected=expected,
                    found=theirs.get(what),
                    fix="give all processes the same flags and the same files",
                )
