"""The layout of a run folder: the name of every file and folder, defined once."""

import functools
import os
from dataclasses import dataclass

from etils import epath

from realm_jax.errors import InputError

MANIFEST = "MANIFEST.json"
POINTER = "LATEST.json"
WRITER = "WRITER.json"  # names the process that writes an unfinished step folder
JOURNAL = "unfinished.jsonl"  # finished shards of an unfinished folder
CONFIG = "config.json"
VOCABULARY = "vocab.txt"
PARAMETERS = "parameters"  # folder, written by Orbax
QUERY_PARAMETERS = "query_parameters"  # the same, only of the query embedder
SEARCHER = "searcher"  # folder, written by a searcher
ROWS = "rows.npy"  # index row -> passage id
VECTORS = "vectors.npy"  # passage vectors by index row, float16
FINGERPRINTS = "fingerprints.npy"  # of the passages, by passage id

SNAPSHOTS = "snapshots"
PUBLISHED_INDEX = "published_index"
SEGMENTS = "segments"
INDEX_UPDATES = "index_updates"
CHECKPOINTS = "checkpoints"
GENERATIONS = "generations"  # inside a corpus that has grown
BM25 = "bm25"  # inside a corpus: its index of words
CORPUS = "corpus"  # corpora that a run builds for itself, like the demo


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

    @property
    def segments(self) -> epath.Path:
        """Vectors of passages that were written after a published index was built."""
        return self.root / SEGMENTS

    @property
    def index_updates(self) -> epath.Path:
        """Lists of segments, by number; the newest is the current index of a finished run."""
        return self.root / INDEX_UPDATES

    def checkpoints(self, stage: str) -> epath.Path:
        """Checkpoints of one stage: ict, reader, realm, qa or tagger."""
        return self.root / CHECKPOINTS / stage

    @property
    def builder(self) -> epath.Path:
        """Embedded shards of the index builder, by step, until their index is published."""
        return self.root / "builder"

    def shards(self, step: int) -> epath.Path:
        """Embedded shards of the snapshot of `step`."""
        return self.builder / step_name(step)

    @property
    def export(self) -> epath.Path:
        """The networks that answer questions, published when the run is finished."""
        return self.root / "export"

    @property
    def tagger(self) -> epath.Path:
        """The tagger that `realm tag train` publishes."""
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
    def corpora(self) -> epath.Path:
        """Hashes of the corpora with which the run was started."""
        return self.root / "corpora.json"

    @property
    def vocabulary(self) -> epath.Path:
        """The vocabulary with which the run was started; its corpora must have the same."""
        return self.root / VOCABULARY

    @property
    def logs(self) -> epath.Path:
        return self.root / "logs"

    @property
    def swaps(self) -> epath.Path:
        """One line per swap: the training step, and the index that is searched from then on."""
        return self.logs / "swaps.jsonl"

    @property
    def indexes(self) -> epath.Path:
        """One line per published index, written by its builder."""
        return self.logs / "indexes.jsonl"

    @property
    def replays(self) -> epath.Path:
        """Batches whose loss was not finite, saved for replay."""
        return self.root / "replay"

    @property
    def report(self) -> epath.Path:
        return self.root / "report.json"


def path_of(address: epath.PathLike) -> epath.Path:
    """The path of a file or folder, local or on an object store.

    Raises:
      InputError: the object store is unknown, or its package is not installed; or the path is not
        UTF-8, which the libraries that write parameters and indexes need.
    """
    scheme, remote, _ = os.fspath(address).partition("://")
    _check_utf8(os.fspath(address))
    try:
        if remote:
            _load_store(scheme)
        return epath.Path(address)
    except (
        ImportError,
        KeyError,
        ValueError,
    ) as error:  # not installed or unknown
        raise InputError(
            "this address cannot be read on this machine",
            where=address,
            expected="a local path, or the address of an object store",
            found=error,
            fix="pip install -e '.[s3]' for s3://, '.[gs]' for gs://, or use a local path",
        ) from error


def _check_utf8(address: str) -> None:
    try:
        address.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "the path is not UTF-8",
            where=ascii(address),
            expected="a path in UTF-8, in a UTF-8 locale",
            found=f"bytes of another encoding at character {error.start}",
            fix="rename the folder; or, if its name is UTF-8, set PYTHONUTF8=1",
        ) from error


@functools.cache
def _load_store(scheme: str) -> None:
    import fsspec

    fsspec.get_filesystem_class(scheme)
    # fsspec would cache listings, which other processes change.
    fsspec.config.conf.setdefault(scheme, {})["use_listings_cache"] = False


def step_name(step: int) -> str:
    """The folder name of a step: eight digits, so that names sort like numbers."""
    return f"{step:08d}"


def step_of(name: str) -> int | None:
    """The step in a folder name; None for any other name."""
    return int(name) if len(name) >= 8 and name.isdecimal() else None
