"""The config of a run, a snapshot or an export, with the inputs at their current paths."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax import config_paths
from realm_jax.corpus.store import PassageStore
from realm_jax.defaults import STAGES
from realm_jax.errors import ConfigError, InputError, MismatchError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import CONFIG, VOCABULARY, RunDir, step_name

Paths = Mapping[str, str]
NO_PATHS: Paths = MappingProxyType({})


def run_config(run: RunDir, config_json: str, where: object, paths: Paths = NO_PATHS) -> ConfigDict:
    """Reads a config that a run has written, checked and locked.

    The paths of inputs come from the config with which the run was last started: snapshots and
    exports hold those of an earlier start.

    Args:
      run: the run folder.
      config_json: the config.
      where: the file or artifact that holds it.
      paths: dotted key -> path, for inputs that are elsewhere on this machine.

    Raises:
      ConfigError: see `config.from_json`.
    """
    config = config_lib.from_json(config_json, where, run.workdir)
    current = newest_config(run)
    if current is not None:
        _set_paths(config, {key: config_lib.value_of(current, key) for key in config_paths.KEYS})
    return _set_paths(config, paths)


def newest_config(run: RunDir, paths: Paths = NO_PATHS) -> ConfigDict | None:
    """The config with which the run was last started; None if its folder has none.

    Raises:
      ConfigError: see `config.from_json`; names what replaces a damaged file.
    """
    content = files.read_bytes(run.config)
    if content is None:
        return None
    try:
        config = config_lib.from_json(content, run.config, run.workdir)
    except ConfigError as error:
        raise ConfigError(
            error.problem,
            where=error.where,
            expected=error.expected,
            found=error.found,
            fix=error.fix or replacement(run),
        ) from error
    return _set_paths(config, paths)


def replacement(run: RunDir) -> str:
    """What replaces a damaged config.json: the copy in a checkpoint, of the last stage first."""
    for stage in reversed(STAGES):
        step = commit.latest(run.checkpoints(stage))
        if step is not None:
            return f"replace it by its copy {run.checkpoints(stage) / step_name(step) / CONFIG}"
    return "delete it, and run the command with the --config with which the run was started"


def _set_paths(config: ConfigDict, paths: Paths) -> ConfigDict:
    with config.unlocked():
        for key, path in paths.items():
            config_lib.set_value(config, key, path)
    return config


def open_knowledge(run: RunDir, config: ConfigDict) -> PassageStore:
    """Opens the knowledge corpus of a run; reads only its manifest.

    Raises:
      InputError: there is no corpus at that path.
      DamageError: a file is missing or has another size than in the manifest.
      MismatchError: the corpus has another vocabulary than the run.
    """
    store = open_corpus(config.corpus.knowledge)
    check_vocabulary(run, store)
    return store


def open_corpus(folder: str) -> PassageStore:
    """Opens a corpus that a config names; raises as `PassageStore.open`."""
    try:
        return PassageStore.open(folder)
    except InputError as error:
        moved = "if the corpus was moved, add --config.corpus.knowledge=FOLDER to the command"
        raise InputError(
            error.problem,
            where=error.where,
            expected=error.expected,
            found=error.found,
            fix="; or ".join(filter(None, [error.fix, moved])),
        ) from error


def check_vocabulary(run: RunDir, store: PassageStore) -> None:
    """Raises a MismatchError if the corpus has another vocabulary than the run.

    The networks of the run would read its word pieces as other ones. If the corpus is that of the
    start of the run, one of the two files was altered.
    """
    if not run.vocabulary.exists():
        return  # a run of an earlier version, or one that has not started
    expected = files.digest(run.vocabulary)["sha256"]
    if store.vocabulary.sha256 == expected:
        return
    if files.read_object(run.corpora).get("knowledge") in store.lineage:
        raise MismatchError(
            "the vocabulary of the run or that of its corpus was altered",
            where=run.vocabulary,
            expected=f"the content of {store.path / VOCABULARY}",
            found="other content, though the corpus was not built again since the run was started",
            fix=f"realm check {shlex.quote(str(store.path))}; if the corpus is valid, replace the "
            "file of the run by that of the corpus",
        )
    raise MismatchError(
        "the corpus has another vocabulary than the run",
        where=store.path,
        expected=f"the vocabulary of {run.vocabulary}",
        found="another one, as a build without --vocab learns it from its input",
        fix=f"delete the corpus and build it again with --vocab={run.vocabulary}",
    )
