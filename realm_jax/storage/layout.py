"""Where everything lies in a run folder: every file and folder name, once."""

import functools
import os
from dataclasses import dataclass

from etils import epath

from realm_jax.errors import InputError

MANIFEST = "MANIFEST.json"
POINTER = "LATEST.json"
JOURNAL = "unfinished.jsonl"  # finished shards of an unfinished folder
CONFIG = "config.json"
VOCABULARY = "vocab.txt"
PARAMETERS = "parameters"  # folder, written by Orbax
QUERY_PARAMETERS = "query_parameters"  # the same, of the query embedder alone
SEARCHER = "searcher"  # folder, written by a searcher
ROWS = "rows.npy"  # index row -> passage id
VECTORS = "vectors.npy"  # passage vectors by index row, float16

SNAPSHOTS = "snapshots"
PUBLISHED_INDEX = "published_index"
CHECKPOINTS = "checkpoints"
CORPUS = "corpus"  # of a run that made its own, like the demo


@dataclass(frozen=True)
class RunDir:
    """A run folder, shared by both jobs.

    Args:
      workdir: a local path or an object-store address such as gs://bucket/run.
    """

    workdir: str | os.PathLike[str]

    @property
    def root(self) -> epath.Path:
        """See `path_of`."""
        return path_of(self.workdir)

    @property
    def snapshots(self) -> epath.Path:
        return self.root / SNAPSHOTS

    @property
    def published_index(self) -> epath.Path:
        return self.root / PUBLISHED_INDEX

    def checkpoints(self, stage: str) -> epath.Path:
        """Checkpoints of one stage: ict, reader, realm, qa or tagger."""
        return self.root / CHECKPOINTS / stage

    @property
    def builder(self) -> epath.Path:
        """Unfinished work of the index builder, by step."""
        return self.root / "builder"

    def shards(self, step: int) -> epath.Path:
        """The builder's unfinished work on the snapshot of `step`."""
        return self.builder / step_name(step)

    @property
    def export(self) -> epath.Path:
        """What answers questions once the run is finished."""
        return self.root / "export"

    @property
    def tagger(self) -> epath.Path:
        """What `realm tag train` trained."""
        return self.root / "tagger"

    @property
    def leases(self) -> epath.Path:
        return self.root / "leases"

    @property
    def heartbeats(self) -> epath.Path:
        return self.root / "heartbeats"

    @property
    def end_marker(self) -> epath.Path:
        return self.root / "END.json"

    @property
    def config(self) -> epath.Path:
        return self.root / CONFIG

    @property
    def logs(self) -> epath.Path:
        return self.root / "logs"

    @property
    def swaps(self) -> epath.Path:
        """One line for each swap: the training step, and the index searched from there on."""
        return self.logs / "swaps.jsonl"

    @property
    def indexes(self) -> epath.Path:
        """One line for each index published, by its builder."""
        return self.logs / "indexes.jsonl"

    @property
    def replays(self) -> epath.Path:
        """Batches at which a loss stopped being a number."""
        return self.root / "replay"

    @property
    def report(self) -> epath.Path:
        return self.root / "report.json"


def path_of(address: epath.PathLike) -> epath.Path:
    """The path of a local file or folder, or of one on an object store.

    Raises:
      InputError: an object store that is none, or whose package is not installed.
    """
    scheme, remote, _ = os.fspath(address).partition("://")
    try:
        if remote:
            _load_store(scheme)
        return epath.Path(address)
    except (ImportError, KeyError, ValueError) as error:  # not installed; no store of etils, fsspec
        raise InputError(
            "this address cannot be read here",
            where=address,
            expected="a local path, or the address of an object store",
            found=error,
            fix="pip install -e '.[s3]' for s3://, '.[gs]' for gs://, or give a local path",
        ) from error


@functools.cache
def _load_store(scheme: str) -> None:
    import fsspec

    fsspec.get_filesystem_class(scheme)
    # Listings are kept otherwise; other processes change them.
    fsspec.config.conf.setdefault(scheme, {})["use_listings_cache"] = False


def step_name(step: int) -> str:
    """The folder name of a step: eight digits, so that names sort as numbers do."""
    return f"{step:08d}"


def step_of(name: str) -> int | None:
    """The step that a folder is named after; None for any other name."""
    return int(name) if len(name) >= 8 and name.isdecimal() else None
