"""Proves from the logs of both jobs that every step searched an unchanged published index."""

import itertools

from realm_jax.artifacts.audit_log import probe_hash
from realm_jax.artifacts.published_index import open_index
from realm_jax.storage import commit, files, sealed
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

_COMPARED_FIELDS = ("snapshot_step", "checksum", "candidates")


def assert_history(run: RunDir, steps: int, bound: int | None = None) -> int:
    """Checks the logs of all processes that trainer and builder have had in this run.

    Raises AssertionError unless

    - the index step increases from line to line, in the builder's log and in the trainer's;
    - each index in the trainer's log is in the builder's log, with the same manifest checksum;
    - the index gives the same candidates for 100 probe queries in the builder, in the trainer, and
      when it is opened here, unless retention has deleted it;
    - no step uses an index of a later step, or one that is more than `bound` steps old.

    Args:
      run: a run folder.
      steps: number of training steps of the run.
      bound: the largest allowed staleness in steps; None for no limit.

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
    return len(used)


def _is_increasing(steps: list[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(steps))
