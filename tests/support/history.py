"""Proves that every step searched an unchanged published index, and that index updates are whole.

A history is what the logs of both jobs and the folders of a run say about its indexes.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.artifacts.audit_log import probe_hash
from realm_jax.artifacts.index_update import (
    BASE,
    IndexUpdate,
    base_segment,
    hidden_rows,
    listed_segments,
    read_update,
)
from realm_jax.artifacts.published_index import open_index
from realm_jax.artifacts.segments import name_of, open_segment
from realm_jax.corpus.store import PassageStore
from realm_jax.storage import commit, files, sealed
from realm_jax.storage.layout import SEARCHER, RunDir, step_name
from realm_jax.storage.logs import read_log

_COMPARED_FIELDS = ("snapshot_step", "corpus_hash", "checksum", "candidates")


def assert_history(
    run: RunDir, steps: int, bound: int | None = None, lineage: Sequence[str] = ()
) -> int:
    """Checks the logs of all processes that trainer and builder have had in this run.

    Raises AssertionError unless

    - the index step increases from line to line, in the builder's log and in the trainer's;
    - each index in the trainer's log is in the builder's log, with the same manifest checksum;
    - the index gives the same candidates for 100 probe queries in the builder, in the trainer, and
      when it is opened here, unless retention has deleted it;
    - no step uses an index of a later step, or one that is more than `bound` steps old;
    - no index covers an earlier generation of the corpus than the one before;
    - a segment is never older than in the index before, and if it was kept, it has the same files.

    Args:
      run: a run folder.
      steps: number of training steps of the run.
      bound: the largest allowed staleness in steps; None for no limit.
      lineage: of the knowledge corpus (`PassageStore.lineage`); empty: its generations are not
        compared.

    Returns:
      The number of index swaps that were checked.
    """
    published = {record["index_step"]: record for record in read_log(run.indexes)}
    used = read_log(run.swaps)
    lines = (files.read_bytes(run.swaps) or b"").splitlines()
    assert len(used) == len(lines), "a line of swaps.jsonl cannot be read"
    assert _is_increasing([record["step"] for record in read_log(run.indexes)])
    assert _is_increasing([record["step"] for record in used]), "steps of swaps"
    assert _is_increasing([record["index_step"] for record in used]), "index steps of swaps"
    for record in used:
        logged = published.get(record["index_step"])
        assert logged is not None, f"used, but never published: {record}"
        for field in _COMPARED_FIELDS:
            assert record[field] == logged[field], (field, record, logged)
        assert record["index_step"] <= record["step"]
    last_steps = [record["step"] - 1 for record in used[1:]] + [steps - 1]
    for record, last in zip(used, last_steps, strict=True) if bound is not None else ():
        assert last - record["index_step"] <= bound, f"step {last} searched {record}"
    for step in commit.steps(run.published_index):
        index = open_index(run.published_index / step_name(step))
        assert sealed.checksum(index.manifest) == published[step]["checksum"]
        found = probe_hash(index.searcher, index.rows, index.vectors)
        assert found == published[step]["candidates"]
    for records in (read_log(run.indexes), used) if lineage else ():
        generations = [lineage.index(record["corpus_hash"]) for record in records]
        assert generations == sorted(generations), f"generations of indexes: {generations}"
    _check_segments([_manifest(run, step) for step in commit.steps(run.published_index)])
    return len(used)


def assert_updates(run: RunDir, corpus: Path, *, finished: bool = True) -> int:
    """Checks the index updates of a finished run.

    Raises AssertionError unless

    - no update covers an earlier generation of the corpus than the one before;
    - each segment has the name of its content, and vectors of the parameters of its index;
    - each passage of the generation of an update is found once, and no other passage is;
    - there is no segment that no update lists.

    Args:
      run: a run folder.
      corpus: folder of the knowledge corpus.
      finished: whether `realm index --once` has ended; else there may be unlisted segments, and
        passages that no update covers.

    Returns:
      The number of updates that were checked.
    """
    store = PassageStore.open(corpus)
    updates = [read_update(run, number) for number in commit.steps(run.index_updates)]
    generations = [store.lineage.index(update.corpus_hash) for update in updates]
    assert generations == sorted(generations), f"generations of updates: {generations}"
    for update in updates:
        found = _found(run, update, store)
        counts = (len(np.unique(found)), len(found), update.passages)
        assert len(set(counts)) == 1, f"update {update.number} finds other passages: {counts}"
        if update.corpus_hash == store.corpus_hash:
            np.testing.assert_array_equal(np.sort(found), store.live_ids())
    if finished:
        unlisted = set(files.list_names(run.segments)) - listed_segments(run)
        assert not unlisted, f"segments that no update lists: {unlisted}"
    return len(updates)


def _found(run: RunDir, update: IndexUpdate, store: PassageStore) -> np.ndarray:
    """Ids of the passages that are found with an update, after the check of its segments."""
    base = open_index(run.published_index / step_name(update.index_step))
    segments = [base_segment(base)]
    assert update.segments[0] == BASE
    for name in update.segments[1:]:
        segment = open_segment(run, name)
        step = _manifest(run, name)["snapshot_step"]
        assert step == update.index_step, f"segment {name} of step {step}"
        kind = segment.searcher.kind
        assert name == name_of(step, kind, segment.rows, segment.vectors), f"name of {name}"
        segments.append(segment)
    rows = [segment.rows for segment in segments]
    return np.delete(np.concatenate(rows), hidden_rows(rows, update.removed))


def _manifest(run: RunDir, name: int | str) -> dict[str, Any]:
    """Of a published index by step, or of a segment by name."""
    folder = run.segments / name if isinstance(name, str) else run.published_index / step_name(name)
    manifest = commit.read_manifest(folder)
    assert manifest is not None, folder
    return manifest


def _check_segments(manifests: Sequence[dict[str, Any]]) -> None:
    """Compares the segments of successive indexes with the same settings."""
    for old, new in itertools.pairwise(manifests):
        if "segments" not in new or old.get("segment_settings") != new["segment_settings"]:
            continue
        for number, (before, now) in enumerate(zip(old["segments"], new["segments"], strict=True)):
            steps = before["snapshot_step"], now["snapshot_step"]
            assert steps[0] <= steps[1] <= new["step"], f"segment {number} of steps {steps}"
            if steps[0] == steps[1]:
                folder = f"{SEARCHER}/segment_{number:05d}/"
                same = [
                    {name: one for name, one in index["files"].items() if name.startswith(folder)}
                    for index in (old, new)
                ]
                assert same[0] == same[1], f"segment {number} was kept with other files"


def _is_increasing(steps: list[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(steps))
