"""A proof over the logs of both jobs that every step searched a published index, as published."""

import itertools

from realm_jax.artifacts.audit_log import candidates
from realm_jax.artifacts.published_index import open_index
from realm_jax.storage import commit, files
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.storage.logs import read_log

_SAME = ("snapshot_step", "checksum", "candidates")


def assert_history(run: RunDir, steps: int, bound: int | None = None) -> int:
    """Raises AssertionError unless, over all lives of both jobs,

    - index steps only grow, in what the builder published and in what the trainer used;
    - whatever was used is what the builder noted, after its manifest was written, by checksum;
    - it gave the same candidates of 100 probe queries to both, and gives them to whoever opens it
      now, where retention has left it;
    - no step of `steps` searched an index more than `bound` steps old, or one of a later step.

    Returns:
      Swaps looked at.
    """
    published = {record["index_step"]: record for record in read_log(run.indexes)}
    used = read_log(run.swaps)
    lines = (files.read_bytes(run.swaps) or b"").splitlines()
    assert len(used) == len(lines), "a line of swaps.jsonl cannot be read"
    assert _grow([record["step"] for record in read_log(run.indexes)])
    assert _grow([record["step"] for record in used]), "steps of swaps"
    assert _grow([record["index_step"] for record in used]), "index steps of swaps"
    for record in used:
        noted = published.get(record["index_step"])
        assert noted is not None, f"used, and never published: {record}"
        for field in _SAME:
            assert record[field] == noted[field], (field, record, noted)
        assert record["index_step"] <= record["step"]
    last_steps = [record["step"] - 1 for record in used[1:]] + [steps - 1]
    for record, last in zip(used, last_steps, strict=True) if bound is not None else ():
        assert last - record["index_step"] <= bound, f"step {last} searched {record}"
    for step in commit.steps(run.published_index):
        index = open_index(run.published_index / step_name(step))
        assert files.checksum(index.manifest) == published[step]["checksum"]
        found = candidates(index.searcher, index.rows, index.vectors)
        assert found == published[step]["candidates"]
    return len(used)


def _grow(steps: list[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(steps))
