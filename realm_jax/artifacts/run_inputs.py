"""The part of `realm check` that opens the inputs of a run: do they fit what the run has built?"""

from collections.abc import Iterator
from typing import Any

from etils import epath

from realm_jax import config as config_lib
from realm_jax.artifacts.corpus_change import corpus_change, rebuild_command
from realm_jax.artifacts.run_config import NO_PATHS, Paths, newest_config, open_knowledge
from realm_jax.errors import RealmError
from realm_jax.storage import commit, files
from realm_jax.storage.layout import CONFIG, RunDir


def input_problems(folder: epath.Path, paths: Paths = NO_PATHS) -> Iterator[dict[str, Any]]:
    """Problems of the config of a run and of its knowledge corpus.

    Args:
      folder: the run.
      paths: see `run_config`.

    Yields:
      `{"file", "expected", "found", "fix"}`: the run is not damaged, but cannot be used as it is.
    """
    run = RunDir(folder)
    if not config_lib.is_config(files.read_object(run.config)):
        return  # a folder of corpora; the caller checks that the file is JSON
    try:
        config = newest_config(run, paths)
        if config is None or not config.corpus.knowledge:
            return
        step = commit.latest(run.published_index)
        change = corpus_change(run, step, open_knowledge(run, config))
        if change is not None:
            raise change.error(rebuild_command(run.workdir, paths))
    except RealmError as error:
        yield {
            "file": CONFIG if error.where is None else str(error.where),
            "expected": error.expected,
            "found": f"{error.problem}: {error.found}",
            "fix": error.fix,
        }
