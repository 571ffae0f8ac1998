"""Changing passages of a live run: answers use the changes, published files do not change."""

import threading

import numpy as np
import pytest

from realm_jax.artifacts.verify import check
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.rows import joint_rows, passage_rows, query_rows
from realm_jax.errors import InputError
from realm_jax.inference.edits import EditedStore, WrittenPassage, edited_index
from realm_jax.inference.fill_mask import MaskFiller
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.serve import live_run
from realm_jax.serve.live_run import LiveRun

QUESTION = "what is the Café?"
EVERYTHING = 20


@pytest.fixture
def live(answerer):
    return LiveRun(answerer)


def texts(report):
    return {p["id"]: p["text"] for p in report["passages"]}


def test_without_changes_answers_equal_those_of_the_run(live, answerer):
    plain, report = answerer.ask(QUESTION, 3).as_dict(), live.ask(QUESTION, 3)
    assert {p.pop("edit") for p in report["passages"]} == {None}
    assert report.pop("closed_book").keys() == {"answer", "probability"}
    assert report.pop("edits_version") == 0
    assert report == plain
    filled = live.fill("the river in [MASK].")
    assert filled["answer"] == MaskFiller(answerer).fill("the river in [MASK].").answer


def test_a_passage_written_again_has_its_vector_in_the_index(live, answerer):
    before = live.ask(QUESTION, EVERYTHING)
    for i in range(len(answerer.store)):
        live.edit(i, answerer.store.title(i), answerer.store.body(i))
        vector = live._changes.written[i].vector
        np.testing.assert_allclose(vector, answerer.index.vectors[i], atol=2e-3, rtol=2e-3)
    after = live.ask(QUESTION, EVERYTHING)
    assert after["answer"] == before["answer"]
    assert after["probability"] == pytest.approx(before["probability"], rel=1e-2)
    assert {p["edit"] for p in after["passages"]} == {"edited"}


def test_an_added_passage_is_read_by_the_next_question_and_published_data_stays(live, answerer):
    change = live.add("Café", "The new Café is in Ulm.")
    added = len(answerer.store)
    assert change == {
        "id": added,
        "edit": "added",
        "index_step": answerer.index.step,
        "edits_version": 1,
    }
    report = live.ask(QUESTION, EVERYTHING)
    assert len(report["passages"]) == added + 1
    [new] = [p for p in report["passages"] if p["edit"] == "added"]
    assert (new["id"], new["title"], new["text"]) == (added, "Café", "The new Café is in Ulm.")
    if new["span"] is not None:
        start, stop = new["span"]
        assert new["text"][start:stop].casefold() == report["answer"].casefold()
    assert sum(p["p_z"] for p in report["passages"]) == pytest.approx(1, abs=1e-4)
    assert len(answerer.ask(QUESTION, EVERYTHING).passages) == added
    assert answerer.store.verify() == []


def test_the_run_folder_is_never_modified(tmp_path, accents):
    from support.finished_run import write_finished_run
    from support.tiny_corpus import tiny_config

    write_finished_run(tmp_path / "run", accents, tiny_config(accents.folder))

    def modification_times():
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        return {path: path.stat().st_mtime_ns for path in files}

    before = modification_times()
    live = LiveRun.open(str(tmp_path / "run"))
    live.add("", "a river.")
    live.edit(0, "", "the tower.")
    live.remove(1)
    live.ask(QUESTION)
    assert modification_times() == before
    assert check(tmp_path / "run")["ok"]


def test_an_edited_passage_is_read_until_the_edit_is_undone(live, answerer):
    before = live.ask(QUESTION, EVERYTHING)
    live.edit(2, "Menu", "The tower was closed since 2001.")
    after = live.ask(QUESTION, EVERYTHING)
    assert texts(after)[2] == "The tower was closed since 2001."
    assert [p["edit"] for p in after["passages"] if p["id"] == 2] == ["edited"]
    assert len(after["passages"]) == len(before["passages"])
    assert live.fill("the [MASK] was", "tower")["edits_version"] == 1
    live.undo(2)
    again = live.ask(QUESTION, EVERYTHING)
    assert again.pop("edits_version") == 2
    before.pop("edits_version")
    assert again == before


def test_a_removed_passage_is_never_read(live, answerer):
    for i in range(len(answerer.store)):
        live.remove(i)
        assert i not in texts(live.ask(QUESTION, EVERYTHING))
        live.undo(i)
    live.remove(3)
    assert 3 not in texts(live.fill("the [MASK] was"))
    assert live.about()["passages"] == len(answerer.store) - 1
    assert [p["edit"] for p in live.changes()["passages"]] == ["removed"]
    live.edit(3, "", "back in Ulm.")
    assert texts(live.ask(QUESTION, EVERYTHING))[3] == "back in Ulm."


def test_ids_of_added_passages_are_never_reused(live, answerer):
    first = live.add("", "one river")["id"]
    live.remove(first)
    assert live.add("", "two rivers")["id"] == first + 1
    assert live.changes()["passages"][0]["text"] == "two rivers"
    with pytest.raises(InputError, match="no such passage"):
        live.edit(first, "", "a third")
    live.undo()
    assert live.changes()["passages"] == []


def test_refused_changes_have_no_effect(live, answerer, monkeypatch):
    size = len(answerer.store)
    with pytest.raises(InputError, match="passage is empty"):
        live.add("a title", " \n ")
    with pytest.raises(InputError, match="too long"):
        live.add("", "river " * 200)
    for i in (-1, size):
        with pytest.raises(InputError, match="no such passage"):
            live.edit(i, "", "a river")
        with pytest.raises(InputError, match="no such passage"):
            live.remove(i)
    monkeypatch.setattr(live_run, "MOST_CHANGES", 1)
    assert live.about()["edits_version"] == 0
    live.add("", "a river")
    with pytest.raises(InputError, match="too many changes"):
        live.add("", "a river")
    with pytest.raises(InputError, match="too many changes"):
        live.remove(0)
    assert live.about()["edits_version"] == 1


def test_the_last_passage_cannot_be_removed(live, answerer):
    for i in range(len(answerer.store) - 1):
        live.remove(i)
    assert len(live.ask(QUESTION, EVERYTHING)["passages"]) == 1
    with pytest.raises(InputError, match="last passage"):
        live.remove(len(answerer.store) - 1)
    assert len(live.ask(QUESTION, EVERYTHING)["passages"]) == 1


@pytest.fixture(scope="module")
def both(tmp_path_factory, accents):
    """A store with two passages replaced and two added: as a view, and written to disk."""
    words = accents.store.vocabulary
    new = {1: ("Ört", "A café in Ulm."), 4: ("", "Rivers!"), 6: ("Ab", "It was."), 7: ("c", "日")}
    written = {}
    for i, (title, body) in new.items():
        (title_ids, _), (body_ids, offsets) = words.pieces([title, body])
        written[i] = WrittenPassage(title, body, title_ids, body_ids, offsets)
    passages = [
        (accents.store.title(i), [accents.store.body(i)]) for i in range(len(accents.store))
    ] + [("", [])] * 2
    for i, (title, body) in new.items():
        passages[i] = (title, [body])
    folder = tmp_path_factory.mktemp("both")
    write_passages(folder / "corpus", passages, accents.folder.parent / "vocab.txt")
    return EditedStore(accents.store, written), PassageStore.open(folder / "corpus")


def test_an_edited_store_reads_like_a_store_on_disk(both):
    view, real = both
    assert len(view) == len(real) == 8
    np.testing.assert_array_equal(view.lengths(), real.lengths())
    for i in range(len(real)):
        assert (view.title(i), view.body(i)) == (real.title(i), real.body(i))
        for read in ("title_ids", "body_ids", "body_offsets"):
            np.testing.assert_array_equal(getattr(view, read)(i), getattr(real, read)(i))
        assert view.sentences(i)[-1] == len(real.body_ids(i))
        assert view.document(i) == (i if i < 6 else -1)


def test_rows_of_an_edited_store_equal_those_of_a_store_on_disk(both):
    view, real = both
    numbers = np.array([[0, 1, 7], [6, -1, 4]])
    queries = query_rows([np.array([8, 9]), np.array([7])], 6, real.vocabulary)
    for actual, expected in (
        (passage_rows(view, numbers, 12), passage_rows(real, numbers, 12)),
        (joint_rows(queries, view, numbers, 16), joint_rows(queries, real, numbers, 16)),
    ):
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_edited_index_finds_the_same_as_an_index_of_the_same_vectors(answerer, both):
    view, _ = both
    rng = np.random.default_rng(0)
    new_vectors = rng.normal(size=(len(view), answerer.index.searcher.dims)).astype(np.float32)
    written = {
        i: WrittenPassage(w.title, w.body, w.title_ids, w.body_ids, w.body_offsets, new_vectors[i])
        for i, w in view.written.items()
    }
    edited = edited_index(answerer.index, written, frozenset({2}))
    vectors = np.array(answerer.index.searcher.vectors)
    full = np.concatenate([vectors, new_vectors[6:]])
    for i in written:
        full[i] = new_vectors[i]
    kept = np.array([0, 1, 3, 4, 5, 6, 7])
    queries = rng.normal(size=(50, full.shape[1])).astype(np.float32)
    assert edited.searcher.size == 7
    for k in (1, 2, 3, 7):
        rows, scores = ExactSearcher(full[kept]).search(queries, k)
        found, found_scores = edited.searcher.search(queries, k)
        np.testing.assert_array_equal(edited.rows[found], kept[rows])
        np.testing.assert_allclose(found_scores, scores, atol=1e-5)
        np.testing.assert_allclose(edited.vectors[found], full[found], atol=1e-2)


def test_closed_book_answer_is_the_blank_filled_with_the_null_passage(live, answerer):
    question, filler, words = "what was ora?", MaskFiller(answerer), answerer.store.vocabulary
    asked, masks = words.pieces([question])[0][0], answerer.config.lengths.masks
    tries = []
    for width in range(1, masks + 1):
        pieces = np.append(asked, np.full(width, words.mask, np.int32))
        query = query_rows([pieces], answerer.config.lengths.query, words)
        positions = np.minimum(np.arange(masks), width - 1) + len(asked) + 1
        _, _, log_p = filler._marginal(question, query, positions[None].astype(np.int32))
        null = log_p[0, :width]
        tries.append((null.max(-1).mean(), null.max(-1).sum(), words.decode(null.argmax(-1))))
    _, total, best = max(tries)
    closed_book = live.ask(question)["closed_book"]
    assert closed_book == {"answer": best, "probability": pytest.approx(np.exp(total), rel=1e-4)}
    live.edit(0, "", "ora was the river.")
    assert live.ask(question)["closed_book"] == closed_book


def test_a_question_without_room_for_a_mask_has_no_closed_book_answer(live):
    report = live.ask("a b c d e f g h i j k l m n o p q r s")
    assert report["closed_book"] is None
    assert report["answer"]


def test_a_batch_gives_the_same_answers_as_single_questions(live):
    questions = [QUESTION, "what is the river?", "what was Ulm?"]
    together = live.ask_all(questions, 3)
    for one, question in zip(together, questions, strict=True):
        single = live.ask(question, 3)
        assert one["answer"] == single["answer"]
        assert one["probability"] == pytest.approx(single["probability"], rel=1e-3)
    with pytest.raises(InputError, match="too long"):
        live.ask_all([QUESTION, "a river " * 40])


def test_each_answer_uses_one_version_while_passages_change(live):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            live.edit(0, "", f"the river {live.about()['edits_version'] + 1}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            report = live.ask(QUESTION, EVERYTHING)
            if report["edits_version"]:
                assert texts(report)[0] == f"the river {report['edits_version']}"
    finally:
        stop.set()
        writer.join()
