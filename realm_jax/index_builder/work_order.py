"""Work orders: which snapshot worker 0 builds an index of, and how the corpus is divided.

`builder/STEP/WORK.json` lies beside the shards of the step. Worker 0 writes it; the other workers
embed their shards, or make their segments, of the newest one. It is deleted first when the index
is published.
"""

from dataclasses import asdict, dataclass

from ml_collections import ConfigDict

from realm_jax.errors import DamageError
from realm_jax.index_builder.built_segments import settings_of
from realm_jax.storage import files, sealed
from realm_jax.storage.layout import RunDir, step_of

WORK = "WORK.json"
_FIELDS = {"step": int, "workers": int, "shard": int, "corpus_hash": str}


@dataclass(frozen=True)
class WorkOrder:
    """A refresh that several workers share.

    Attributes:
      step: of the snapshot.
      workers: number of workers, n.
      shard: passages of a shard.
      corpus_hash: of the knowledge corpus.
      settings: see `built_segments.settings_of`; a worker that reads other ones waits for another
        order.
      kept: step of the index whose segments are kept, except one of each worker (`rolling`);
        -1: all segments are made.
    """

    step: int
    workers: int
    shard: int
    corpus_hash: str
    settings: str = ""
    kept: int = -1

    def is_of(self, config: ConfigDict) -> bool:
        """Whether a config (`refresh_config`) has the settings; True if they are not known."""
        return self.settings in ("", settings_of(config, self.corpus_hash))


def write_order(run: RunDir, order: WorkOrder) -> None:
    """Writes a work order; replaces that of an earlier start of worker 0.

    Deletes the work orders of later steps, which `newest_order` would return instead. There are
    some if worker 0 was killed and the snapshot of such a step was then deleted as damaged.
    """
    for later in map(step_of, files.list_names(run.builder)):
        if later is not None and later > order.step:
            files.delete_file(run.shards(later) / WORK)
    sealed.write(run.shards(order.step) / WORK, asdict(order))


def delete_shards_of_other_corpus(run: RunDir, order: WorkOrder) -> None:
    """Deletes shards that a stopped builder embedded of another version of the corpus."""
    folder = run.shards(order.step)
    try:
        content = sealed.read(folder / WORK, **_FIELDS)
    except DamageError:
        content = None
    if content is None or content["corpus_hash"] != order.corpus_hash:
        files.delete_tree(folder)


def newest_order(run: RunDir) -> WorkOrder | None:
    """The work order of the latest step that has one; one listing and usually one read."""
    named = map(step_of, files.list_names(run.builder))
    for step in sorted((step for step in named if step is not None), reverse=True):
        try:
            content = sealed.read(run.shards(step) / WORK, **_FIELDS)
        except DamageError:
            continue  # it is being written; the next call reads it
        if content is not None:
            known = {name: content[name] for name in _FIELDS}
            later = {name: content[name] for name in ("settings", "kept") if name in content}
            return WorkOrder(**known, **later)
    return None


def delete_shards(run: RunDir, step: int) -> None:
    """Deletes the shards and work orders of a published step and of all earlier steps.

    A builder that was stopped and resumed at a newer snapshot leaves shards of earlier steps.
    """
    for old in map(step_of, files.list_names(run.builder)):
        if old is not None and old <= step:
            files.delete_file(run.shards(old) / WORK)
            files.delete_tree(run.shards(old))
