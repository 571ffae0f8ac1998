"""A week of changes, with kills: the index equals a fresh one, and the disk does not fill."""

import multiprocessing
import random
from pathlib import Path

import pytest
from support import grown_run
from support.grown_run import assert_equals_fresh, bring_up_to_date, open_newest, write
from support.tiny_corpus import passages, vocabulary

from realm_jax.artifacts.verify import check
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import RunDir
from realm_jax.text.vocabulary import write_vocabulary

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["support.grown_run", "pytest"])
SIZE, LEAST, MOST = 20, 10, 40  # passages: at the start, and between which the corpus stays
OPERATIONS = 100  # of one process
MOST_FILES = 6000  # file operations of one process; it is killed at a random one


def change(corpus, number, rng):
    """One random change of a corpus."""
    live = PassageStore.open(corpus).live_ids().tolist()
    kind = rng.random()
    if len(live) < MOST and kind < 0.4:
        write(corpus, (None, f"the {number} river"))
    elif len(live) > LEAST and kind < 0.7:
        write(corpus, removed=(rng.choice(live),))
    else:
        write(corpus, (rng.choice(live), f"what was {number}"))


def work(workdir, corpus, seed, killed_at):
    """Changes a corpus and brings the index up to date, until it is killed."""
    rng, run = random.Random(seed), RunDir(workdir)
    current = open_newest(run, corpus)
    with armed(f"file:{killed_at}=kill"):
        for number in range(OPERATIONS):
            change(corpus, seed * OPERATIONS + number, rng)
            if rng.random() < 0.7:
                current = bring_up_to_date(run, current)


def disk_bytes(*folders):
    return sum(
        f.stat().st_size for folder in folders for f in Path(folder).rglob("*") if f.is_file()
    )


@pytest.mark.slow
@pytest.mark.parametrize("operations", [10_000])
def test_a_week_of_changes_with_kills_equals_a_fresh_index(tmp_path, operations):
    run, corpus = RunDir(tmp_path / "run"), tmp_path / "corpus"
    write_vocabulary(tmp_path / "vocab.txt", vocabulary())
    write_passages(corpus, passages(SIZE), tmp_path / "vocab.txt")
    grown_run.publish_base(run, PassageStore.open(corpus))
    rng, killed, compacted = random.Random(0), 0, []
    for number in range(operations // OPERATIONS):
        arguments = (str(run.workdir), corpus, number, rng.randrange(1, 2 * MOST_FILES))
        process = PROCESSES.Process(target=work, args=arguments)
        process.start()
        process.join()
        killed += process.exitcode == -9
        assert process.exitcode in (0, -9)
        current = bring_up_to_date(run, open_newest(run, corpus))
        assert_equals_fresh(current, corpus)
        assert len(current.segments) < 10
        if number % 10 == 9:
            compact(corpus)
            assert_equals_fresh(open_newest(run, corpus), corpus)
            assert check(run.root)["ok"] and check(corpus)["ok"]
            compacted.append((len(PassageStore.open(corpus)), disk_bytes(tmp_path)))
    assert killed > operations // OPERATIONS / 4
    ids, sizes = zip(*compacted, strict=True)
    # An id is never used again and costs some bytes; nothing else is left of a change.
    assert max(sizes) < 300_000 + 100 * ids[-1], compacted
