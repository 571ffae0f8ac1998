"""Finished segments of an index that is being built: one folder each, until it is published.

`builder/STEP/segment_I` holds the searcher of segment I, its vectors in float16 and the hits of the
probe queries, from which the recall of the whole index is measured. Its manifest is written last.
"""

import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float16
from ml_collections import ConfigDict

from realm_jax.errors import DamageError
from realm_jax.index_builder.recall import ProbeHits
from realm_jax.retrieval.saved_searcher import SavedSearcher
from realm_jax.retrieval.search_plan import TREE_FROM
from realm_jax.storage import commit
from realm_jax.storage.layout import SEARCHER, VECTORS, RunDir

KIND = "index_segment"
# More leaves find more at equal cost of a search, but the time to train the leaves of one segment
# grows with the square of their number, and must not grow with the corpus.
MORE_LEAVES = 2
_HITS = "hits.npz"
_NAMES = ("scores", "found", "exact", "rounding")  # of the arrays of ProbeHits
_PROBES = ("asked", "passages")


@dataclass(frozen=True)
class Segment:
    """A finished segment.

    Attributes:
      searcher: over its rows.
      vectors: of its rows, memory-mapped.
      asked: hits of the probe queries of the snapshot; None: of a segment that was kept.
      passages: hits of passages as queries; likewise.
      trained: see `BuiltIndex`.
      seconds: `seconds_embed`, `seconds_build` and `seconds_check`.
    """

    searcher: SavedSearcher
    vectors: Float16[np.ndarray, "N E"]
    asked: ProbeHits | None
    passages: ProbeHits | None
    trained: dict[str, Any]
    seconds: dict[str, float]


def segment_bounds(size: int, config: ConfigDict) -> list[tuple[int, int]]:
    """First index row of each segment, and the row after its last; sizes differ by one at most.

    An index of kind mesh is one segment: its rows are divided among the devices. Without rows there
    is none.

    Args:
      size: N.
      config: `search` is used.
    """
    if not size:
        return []
    count = 1 if config.search.kind == "mesh" else -(-size // config.search.segment_passages)
    ends = [number * size // count for number in range(count + 1)]
    return list(itertools.pairwise(ends))


def segment_search(config: ConfigDict, size: int) -> ConfigDict:
    """`config.search` for the segments of an index of `size` rows.

    Unless `search.leaves` is set, each segment has as many leaves as one index of all rows would
    have, but at most `MORE_LEAVES` times the square root of its own rows. Recall@8 on 400,000
    synthetic rows, with a tenth of the leaves searched: one index 0.988; four segments 0.980, and
    0.964 with the square root of their own rows (benchmarks/segments.py).
    """
    search = config.search.copy_and_resolve_references()
    if size >= TREE_FROM and not search.leaves:
        rows = -(-size // len(segment_bounds(size, config)))
        search.leaves = round(min(size**0.5, MORE_LEAVES * rows**0.5))
    return search


def settings_of(config: ConfigDict, corpus_hash: str) -> str:
    """Hash of what a segment depends on besides its snapshot: search settings and corpus."""
    search = {key: value for key, value in config.search.items() if key != "placement"}
    kept = {"search": search, "corpus_hash": corpus_hash}
    kept |= {"recall_floor": config.builder.recall_floor, "seed": config.seed}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def segment_folder(run: RunDir, step: int, number: int) -> epath.Path:
    """The folder of a finished segment of the index of `step`."""
    return run.shards(step) / f"segment_{number:05d}"


def write_hits(folder: Path, asked: ProbeHits, passages: ProbeHits) -> None:
    """Writes the hits of the probe queries into the folder of a segment."""
    arrays = {
        f"{kind}_{name}": getattr(hits, name)
        for kind, hits in zip(_PROBES, (asked, passages), strict=True)
        for name in _NAMES
    }
    np.savez(folder / _HITS, **arrays)


def is_finished(folder: epath.Path, settings: str) -> bool:
    """Whether the segment is finished, and was made with these settings."""
    try:
        manifest = commit.read_manifest(folder)
    except DamageError:
        return False
    return manifest is not None and manifest.get("settings") == settings


def open_segment(copy: epath.Path, manifest: dict[str, Any]) -> Segment:
    """Opens a verified segment; `copy` is where its files are."""
    with np.load(Path(copy / _HITS)) as arrays:
        asked, passages = (
            ProbeHits(**{name: arrays[f"{kind}_{name}"] for name in _NAMES}) for kind in _PROBES
        )
    return Segment(
        SavedSearcher(Path(copy / SEARCHER)),
        np.load(copy / VECTORS, mmap_mode="r"),
        asked,
        passages,
        manifest["trained"],
        manifest["seconds"],
    )
