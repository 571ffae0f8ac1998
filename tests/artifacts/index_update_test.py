"""An index that follows its corpus: equal to a fresh build, whoever writes and is killed."""

import contextlib
import shutil

import numpy as np
import pytest
from etils import epath
from support import grown_run
from support.grown_run import STEP, assert_equals_fresh, bring_up_to_date, embed, open_newest, write
from support.tiny_corpus import passages, vocabulary

from realm_jax.artifacts import index_writer
from realm_jax.artifacts.corpus_change import corpus_change
from realm_jax.artifacts.current_index import check_coverage, up_to_date_command
from realm_jax.artifacts.index_update import hidden_rows, listed_segments
from realm_jax.artifacts.index_writer import Embedded, delete_outdated, extend
from realm_jax.artifacts.verify import check
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import DamageError, InputError
from realm_jax.storage import commit, files
from realm_jax.storage.commit import OvertakenError
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import RunDir
from realm_jax.storage.leases import Lease
from realm_jax.text.vocabulary import write_vocabulary

SIZE = 12


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grown")
    write_vocabulary(folder / "vocab.txt", vocabulary())
    write_passages(folder / "corpus", passages(SIZE), folder / "vocab.txt")
    grown_run.publish_base(RunDir(folder / "run"), PassageStore.open(folder / "corpus"))
    return folder


@pytest.fixture
def grown(original, tmp_path):
    """Run and corpus, which a test may change."""
    for name in ("run", "corpus"):
        shutil.copytree(original / name, tmp_path / name)
    return RunDir(tmp_path / "run"), tmp_path / "corpus"


def test_added_replaced_and_removed_passages_are_found_as_in_a_fresh_index(grown):
    run, corpus = grown
    current = open_newest(run, corpus)
    assert current.number == 0
    assert current.index is current.base
    write(corpus, (None, "a river"), (None, "the capital"))
    write(corpus, (3, "what was"), (SIZE, "in the river"), removed=(5, SIZE + 1))
    current = bring_up_to_date(run, current)
    assert_equals_fresh(current, corpus)
    assert_equals_fresh(open_newest(run, corpus), corpus)
    assert current.index.row_of[5] == -1
    write(corpus, (5, "is back"), (3, "since the river"))
    current = bring_up_to_date(run, current)
    assert_equals_fresh(current, corpus)
    assert bring_up_to_date(run, current).number == current.number  # nothing is published again
    assert check(run.root)["ok"]


def test_random_changes_equal_a_fresh_index_with_few_segments(grown, monkeypatch):
    run, corpus = grown
    random_changes(run, corpus, rounds=15, seed=0)


def random_changes(run, corpus, rounds, seed):
    """Random generations of a corpus, after each of which the index is extended and checked."""
    rng, current = np.random.default_rng(seed), open_newest(run, corpus)
    for number in range(rounds):
        store = PassageStore.open(corpus)
        live = rng.permutation(store.live_ids())
        texts = [(None, f"the {number} {one}") for one in range(rng.integers(0, 3))]
        texts += [(int(i), f"was {number} {i}") for i in live[: rng.integers(0, 3)]]
        removed = live[3 : 3 + (rng.random() < 0.4)] if len(live) > 5 else []
        write(corpus, *texts, removed=tuple(int(i) for i in removed))
        if rng.random() < 0.7:
            current = bring_up_to_date(
                run, current if rng.random() < 0.5 else open_newest(run, corpus)
            )
            assert_equals_fresh(current, corpus)
    current = bring_up_to_date(run, current)
    assert_equals_fresh(open_newest(run, corpus), corpus)
    assert len(current.segments) <= 2 + np.log2(2 + 3 * rounds)
    assert len(commit.steps(run.index_updates)) == 2
    assert set(files.list_names(run.segments)) == listed_segments(run)


def test_passages_that_changed_since_the_update_are_not_found(grown, caplog):
    run, corpus = grown
    write(corpus, (0, "the river"), (None, "a new one"), removed=(1,))
    current = open_newest(run, corpus)
    assert current.pending.tolist() == [0, 1, SIZE]
    assert current.missing.tolist() == [0, SIZE]
    found = current.index.rows[
        current.index.searcher.search(np.ones((1, 8), np.float32), SIZE - 2)[0]
    ]
    assert sorted(found[0]) == list(range(2, SIZE))
    check_coverage(current, up_to_date_command(run.workdir))
    assert f"realm index --workdir={run.workdir} --once" in caplog.text
    assert corpus_change(run, STEP, PassageStore.open(corpus)) is None
    write(corpus, *[(i, "a river") for i in range(2, SIZE)])
    with pytest.raises(InputError, match="every passage"):
        check_coverage(open_newest(run, corpus), "realm index --once")


def test_updates_of_two_writers_are_both_kept(grown):
    run, corpus = grown
    one = two = open_newest(run, corpus)
    write(corpus, (0, "the river"))
    one = bring_up_to_date(run, one)
    write(corpus, (0, "the capital"), (2, "in"))
    two = bring_up_to_date(run, two)  # has not seen the update of the other
    assert_equals_fresh(two, corpus)
    assert_equals_fresh(open_newest(run, corpus, before=one), corpus)


def test_a_vector_that_is_outdated_when_the_index_is_locked_is_not_used(grown):
    run, corpus = grown
    current = open_newest(run, corpus)
    write(corpus, (0, "the river"), (1, "a river"))
    store, ids = PassageStore.open(corpus), np.array([1, 0])
    done = Embedded(store.generation, ids, embed(store, ids))
    write(corpus, (0, "the capital"))
    current = extend(run, current, done, embed)
    assert_equals_fresh(current, corpus)


def test_a_segment_that_is_outdated_when_the_index_is_locked_does_not_win(grown):
    run, corpus = grown
    current = open_newest(run, corpus)
    write(corpus, (0, "the river"), (1, "a river"), (2, "is"))
    store, ids = PassageStore.open(corpus), np.array([0, 1, 2])
    vectors = embed(store, ids)
    searcher = index_writer.ExactSearcher(vectors)
    name = index_writer.publish_segment(run, STEP, searcher, ids, vectors)
    write(corpus, (0, "the capital"), removed=(1,))
    bring_up_to_date(run, current)  # another writer, with the newer texts
    nothing = np.empty(0, np.int64)
    write(corpus, (None, "since"))
    done = Embedded(store.generation, nothing, embed(store, nothing), (name,), ids)
    assert_equals_fresh(extend(run, current, done, embed), corpus)


@pytest.mark.parametrize(
    "point",
    [
        "segment.staged", "segment.committed", "index_update.staged", "index_update.committed",
        "index_update.published", "retention.unlisted", "segment.unlisted",
    ],
)  # fmt: skip
def test_an_update_that_fails_at_any_point_is_made_by_the_next_writer(grown, point):
    run, corpus = grown
    current = open_newest(run, corpus)
    for number in range(5):
        write(corpus, (number, f"the {number}"))
        current = bring_up_to_date(run, current)
    write(corpus, (0, "the river"), (None, "a river"), removed=(1,))
    with armed(f"{point}=error") as failing, pytest.raises(OSError, match=r"failpoint"):
        bring_up_to_date(run, current)
    assert failing.reached == 1
    seen = open_newest(run, corpus)  # the old version or the new one, whole
    assert_equals_fresh(bring_up_to_date(run, seen), corpus)
    assert_equals_fresh(open_newest(run, corpus), corpus)
    assert check(run.root)["ok"]


def test_a_reader_opens_the_next_version_when_its_own_is_deleted(grown, monkeypatch):
    run, corpus = grown
    current = open_newest(run, corpus)
    write(corpus, (0, "the river"))
    current = bring_up_to_date(run, current)
    old = open_newest(run, corpus)
    queries = np.ones((1, 8), np.float32)
    before = old.index.searcher.search(queries, 3)
    for number in range(4):
        write(corpus, (number, f"the {number}"))
        current = bring_up_to_date(run, current)
    assert not (run.segments / old.names[-1]).exists()
    np.testing.assert_array_equal(old.index.searcher.search(queries, 3), before)
    assert_equals_fresh(open_newest(run, corpus, before=old), corpus)


def test_leased_updates_and_their_segments_are_kept(grown):
    run, corpus = grown
    current = open_newest(run, corpus)
    write(corpus, (0, "the river"))
    held = current = bring_up_to_date(run, current)
    Lease(run, "reader").hold({"index_updates": [held.number]})
    for number in range(4):
        write(corpus, (number, f"the {number}"))
        current = bring_up_to_date(run, current)
    assert held.number in commit.steps(run.index_updates)
    assert set(held.names[1:]) <= set(files.list_names(run.segments))


def test_damage_of_any_file_is_refused_with_its_name(grown):
    run, corpus = grown
    current = open_newest(run, corpus)
    write(corpus, (0, "the river"), removed=(1,))
    bring_up_to_date(run, current)
    damaged = 0
    for parent in (run.segments, run.index_updates):
        for name in files.list_files(parent):
            path = parent / name
            if path.name in ("lock", "LATEST.json"):
                continue
            content = path.read_bytes()
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            if path.parent.parent == run.index_updates and path.name == "MANIFEST.json":
                assert len(open_newest(run, corpus).pending)  # the update counts as not published
            else:
                with pytest.raises(DamageError):
                    open_newest(run, corpus)
            problems = check(run.root)["problems"]
            assert [epath.Path(one["file"]).name for one in problems] == [path.name], name
            path.write_bytes(content)
            damaged += 1
    assert damaged == 7
    assert_equals_fresh(open_newest(run, corpus), corpus)


def test_rows_of_removed_and_newer_passages_are_hidden():
    rows = [np.array([0, 1, 2, 3]), np.array([1, 4]), np.array([4, 0])]
    np.testing.assert_array_equal(hidden_rows(rows, np.array([3])), [0, 1, 3, 5])
    np.testing.assert_array_equal(hidden_rows(rows[:1], np.empty(0, np.int64)), [])


def test_without_locks_a_writer_that_was_overtaken_is_refused(grown, monkeypatch):
    """The other writer has merged and deleted segments that the first one would list."""
    monkeypatch.setattr(index_writer, "one_writer", lambda run: contextlib.nullcontext())
    run, corpus = grown
    current = open_newest(run, corpus)
    write(corpus, *[(None, f"a river {n}") for n in range(7)])
    current = bring_up_to_date(run, current)
    write(corpus, (None, "the capital"))

    def overtaken(store, ids):
        for count in (4, 8):
            write(corpus, *[(None, f"since the river {count + n}") for n in range(count)])
            bring_up_to_date(run, open_newest(run, corpus))
            delete_outdated(run, 1)
        return embed(store, ids)

    nothing = np.empty(0, np.int64), np.empty((0, 8), np.float32)
    with pytest.raises(OvertakenError, match="another process published an index update"):
        extend(run, current, Embedded(current.store.generation, *nothing), overtaken)
    assert_equals_fresh(open_newest(run, corpus), corpus)
