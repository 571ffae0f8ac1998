"""Where everything lies in a run folder: every file and folder name, once."""

import contextlib
import functools
import os
from dataclasses import dataclass

from etils import epath

MANIFEST = "MANIFEST.json"
POINTER = "LATEST.json"
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
        scheme, remote, _ = os.fspath(self.workdir).partition("://")
        if remote:
            _never_from_a_cache(scheme)
        return epath.Path(self.workdir)

    @property
    def snapshots(self) -> epath.Path:
        return self.root / SNAPSHOTS

    @property
    def published_index(self) -> epath.Path:
        return self.root / PUBLISHED_INDEX

    def checkpoints(self, stage: str) -> epath.Path:
        """Checkpoints of one stage: ict, reader, realm, qa or tagger."""
        return self.root / CHECKPOINTS / stage

    def shards(self, step: int) -> epath.Path:
        """The builder's unfinished work on the snapshot of `step`."""
        return self.root / "builder" / step_name(step)

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
        """One line for each swap: the training step, and the step of the index from there on."""
        return self.logs / "swaps.jsonl"

    @property
    def report(self) -> epath.Path:
        return self.root / "report.json"


@functools.cache
def _never_from_a_cache(scheme: str) -> None:
    """fsspec keeps listings of object stores; other processes change them."""
    with contextlib.suppress(ImportError):  # whoever reads the path says what is to be installed
        import fsspec

        fsspec.config.conf.setdefault(scheme, {})["use_listings_cache"] = False


def step_name(step: int) -> str:
    """The folder name of a step: eight digits, so that names sort as numbers do."""
    return f"{step:08d}"


def step_of(name: str) -> int | None:
    """The step that a folder is named after; None for any other name."""
    return int(name) if len(name) >= 8 and name.isdecimal() else None
