"""Several processes change and read one run at the same time, while its corpus is compacted."""

import multiprocessing
import os

import numpy as np
import pytest
from support import grown_run
from support.grown_run import (
    assert_consistent,
    assert_equals_fresh,
    bring_up_to_date,
    open_newest,
    write,
)
from support.history import assert_updates
from support.tiny_corpus import passages, vocabulary

from realm_jax.artifacts.verify import check
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.corpus.store_writer import write_passages
from realm_jax.storage.layout import RunDir
from realm_jax.text.vocabulary import write_vocabulary

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["support.grown_run", "pytest"])
SIZE, SHARED = 12, 3  # passages; one that both processes write


@pytest.fixture
def grown(tmp_path):
    """A run, its corpus, and an opened index of two segments."""
    run, corpus = RunDir(tmp_path / "run"), tmp_path / "corpus"
    write_vocabulary(tmp_path / "vocab.txt", vocabulary())
    write_passages(corpus, passages(SIZE), tmp_path / "vocab.txt")
    grown_run.publish_base(run, PassageStore.open(corpus))
    write(corpus, (0, "the river"), (None, "is new"), removed=(5,))
    return run, corpus, bring_up_to_date(run, open_newest(run, corpus))


def edit(workdir, corpus, number, edits, both):
    """Replaces a passage of its own and a shared one, adds one, and again; compacts in between."""
    run = RunDir(workdir)
    current = open_newest(run, corpus)
    both.wait()
    for n in range(edits):
        written = f"{os.getpid()} {n}"
        # No two passages have the same text: the order of equal scores depends on the segments.
        shared = f"{written}, shared"
        write(corpus, (number, f"{number} was {n}"), (SHARED, shared), (None, written))
        current = bring_up_to_date(run, current)
        if n % 4 == number:
            compact(corpus)


@pytest.mark.parametrize("edits", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_two_writers_lose_nothing_and_readers_see_whole_versions(grown, edits):
    run, corpus, held = grown
    queries = np.ones((1, grown_run.DIMS), np.float32)
    before = held.index.searcher.search(queries, SIZE)
    both = PROCESSES.Barrier(2)
    writers = [
        PROCESSES.Process(target=edit, args=(run.workdir, corpus, number, edits, both))
        for number in (1, 2)
    ]
    for writer in writers:
        writer.start()
    current, seen = held, []
    while any(writer.is_alive() for writer in writers):
        current = open_newest(run, corpus, before=current)
        assert_consistent(current)
        seen.append((current.number, current.store.generation))
        assert_consistent(held)  # its files were deleted meanwhile
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen == sorted(seen)
    np.testing.assert_array_equal(held.index.searcher.search(queries, SIZE), before)
    assert held.store.body(0) == "the river"
    store = PassageStore.open(corpus)
    bodies = {store.body(i) for i in store.live_ids().tolist()}
    assert {f"{one.pid} {n}" for one in writers for n in range(edits)} <= bodies
    assert (store.body(1), store.body(2)) == (f"1 was {edits - 1}", f"2 was {edits - 1}")
    current = bring_up_to_date(run, open_newest(run, corpus))
    assert_equals_fresh(current, corpus)
    assert_updates(run, corpus)
    assert check(run.root)["ok"]
    assert verify(corpus) == []
