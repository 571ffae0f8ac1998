"""Changing passages of a live run: answers use the changes, which last and reach other servers."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from support.accented_run import copied, reopened
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.verify import check
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.data.rows import query_rows
from realm_jax.errors import InputError
from realm_jax.index_builder.once import run_once
from realm_jax.inference import passage_editor
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.fill_mask import MaskFiller
from realm_jax.serve import live_run
from realm_jax.serve.live_run import LiveRun, ReadOnlyError
from realm_jax.storage.failpoints import armed

QUESTION = "what is the Café?"
EVERYTHING = 20


@pytest.fixture
def live(answerer, tmp_path):
    return LiveRun(copied(answerer, tmp_path))


@pytest.fixture
def other(answerer, tmp_path):
    """Opens the same run again, as another server does."""

    def open_again(**settings):
        return LiveRun(reopened(answerer, tmp_path), **settings)

    return open_again


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
        live.remove(i)
        live.edit(i, answerer.store.title(i), answerer.store.body(i))
    ids = np.arange(len(answerer.store))
    index = live._answerer.index
    assert not np.isin(index.row_of[ids], ids).any()  # each vector is in a new segment
    vectors = answerer.index.vectors_of(ids).astype(np.float32)
    np.testing.assert_allclose(index.vectors_of(ids), vectors, atol=2e-3, rtol=2e-3)
    after = live.ask(QUESTION, EVERYTHING)
    assert after["answer"] == before["answer"]
    assert after["probability"] == pytest.approx(before["probability"], rel=1e-2)
    assert {p["edit"] for p in after["passages"]} == {None}
    assert after["edits_version"] == 2 * len(ids)


def test_an_added_passage_is_read_by_the_next_question_and_after_a_restart(live, other, answerer):
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
    again = other().ask(QUESTION, EVERYTHING)
    assert texts(again) == texts(report)
    assert {p["edit"] for p in again["passages"]} == {None}
    assert check(live._answerer.run.root)["ok"]


def test_an_edited_passage_is_read_until_the_edit_is_undone(live):
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
    assert texts(again) == texts(before)
    assert live.changes()["passages"] == []


def test_a_passage_longer_than_the_rows_of_the_index_is_restored(answerer, tmp_path):
    run = copied(answerer, tmp_path)
    run.config = run.config.copy_and_resolve_references()
    run.config.lengths.passage = int(run.store.lengths().max()) - 1
    live, longest = LiveRun(run), int(run.store.lengths().argmax())
    with pytest.raises(InputError, match="too long"):
        live.edit(longest, run.store.title(longest), run.store.body(longest))
    live.remove(longest)
    live.undo()
    assert live.changes()["passages"] == []


@pytest.mark.parametrize("retriever", ["dense", "bm25", "hybrid"])
def test_a_removed_passage_is_never_read(live, answerer, retriever):
    live.remove(3)
    assert 3 not in texts(live.ask(QUESTION, EVERYTHING, retriever))
    assert 3 not in texts(live.fill("the [MASK] was", None, retriever))
    assert live.about()["passages"] == len(answerer.store) - 1
    assert [p["edit"] for p in live.changes()["passages"]] == ["removed"]
    live.edit(3, "", "back in Ulm.")
    assert texts(live.ask(QUESTION, EVERYTHING, retriever))[3] == "back in Ulm."


def test_ids_of_added_passages_are_never_reused(live):
    first = live.add("", "one river")["id"]
    live.remove(first)
    assert live.add("", "two rivers")["id"] == first + 1
    assert live.changes()["passages"][0]["text"] == "two rivers"
    with pytest.raises(InputError, match="no such passage"):
        live.edit(first, "", "a third")
    live.remove(0)
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
    assert live.about()["edits_version"] == 0
    monkeypatch.setattr(live_run, "MOST_CHANGES", 1)
    live.add("", "a river")
    live.add("", "a river")
    with pytest.raises(InputError, match="too many changes"):
        live.undo()
    assert len(live.changes()["passages"]) == 1


def test_a_probe_of_the_health_does_not_wait_for_answers(live, monkeypatch):
    begun, go_on, ask = threading.Event(), threading.Event(), Answerer.ask

    def slow(*arguments):
        begun.set()
        return ask(*arguments) if go_on.wait(30) else None

    monkeypatch.setattr(Answerer, "ask", slow)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(live.ask, QUESTION)
        assert begun.wait(30) and live.about()["step"] > 0 and live.examples is not None
        go_on.set()
        assert answer.result()["answer"]


def test_the_last_passage_cannot_be_removed(live, answerer):
    for i in range(len(answerer.store) - 1):
        live.remove(i)
    assert len(live.ask(QUESTION, EVERYTHING)["passages"]) == 1
    with pytest.raises(InputError, match="at least one passage"):
        live.remove(len(answerer.store) - 1)
    assert len(live.ask(QUESTION, EVERYTHING)["passages"]) == 1


def test_a_read_only_server_refuses_changes_and_sees_those_of_others(live, other):
    reader = other(read_only=True)
    for change in (
        lambda: reader.add("", "a river"),
        lambda: reader.edit(0, "", "a river"),
        lambda: reader.remove(0),
        reader.undo,
    ):
        with pytest.raises(ReadOnlyError, match="does not change passages"):
            change()
    live.edit(0, "", "the river")
    assert wait_for(lambda: texts(reader.ask(QUESTION, EVERYTHING))[0], "the river")
    assert (reader.about()["read_only"], live.about()["read_only"]) == (True, False)


def test_while_a_compaction_replaces_the_index_answers_come_from_the_one_before(
    accents, tmp_path, caplog
):
    shutil.copytree(accents.folder, tmp_path / "corpus")
    corpus = replace(accents, folder=tmp_path / "corpus")
    workdir, config = str(tmp_path / "run"), tiny_config(corpus.folder)
    write_finished_run(workdir, corpus, config, snapshot=True)
    live = LiveRun(Answerer.open(workdir))
    live.remove(1)
    live.edit(0, "", "the river")
    before = live.ask(QUESTION, EVERYTHING)
    compact(corpus.folder)
    with armed("published_index.staged=error"), pytest.raises(OSError, match="failpoint"):
        run_once(workdir, threading.Event())
    time.sleep(live_run._POLL_SECONDS)
    assert live.ask(QUESTION, EVERYTHING) == before
    assert "is replacing it" in caplog.text
    run_once(workdir, threading.Event())
    time.sleep(live_run._POLL_SECONDS)
    assert texts(live.ask(QUESTION, EVERYTHING)) == texts(before)
    assert not len(live._answerer.index.hidden)  # it was opened again


def wait_for(value, expected):
    """Whether a value is as expected within a minute: an answer may be compiled first."""
    until = time.monotonic() + 60
    while value() != expected:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_two_servers_see_the_changes_of_each_other(live, other):
    second = other()
    added = live.add("Café", "The Café is in Ani.")["id"]
    assert second.add("Tower", "The tower of Ulm.")["id"] == added + 1
    assert wait_for(
        lambda: texts(live.ask(QUESTION, EVERYTHING)).get(added + 1), "The tower of Ulm."
    )
    second.edit(added, "", "The Café is in Ora.")
    assert wait_for(lambda: texts(live.ask(QUESTION, EVERYTHING))[added], "The Café is in Ora.")
    live.remove(added)
    assert wait_for(lambda: added in texts(second.ask(QUESTION, EVERYTHING)), False)
    assert live.about()["edits_version"] == second.about()["edits_version"] == 4


@pytest.mark.parametrize(
    "point",
    [
        "corpus_generation.staged", "corpus_generation.published", "segment.committed",
        "index_update.staged", "index_update.committed", "index_update.published",
    ],
)  # fmt: skip
def test_a_change_that_fails_at_any_point_is_whole_or_not_there(live, other, answerer, point):
    error = pytest.raises(InputError, match="the change is saved")
    if point.startswith("corpus_generation"):
        error = pytest.raises(OSError, match="failpoint")
    with armed(f"{point}=error") as failing, error:
        live.edit(0, "", "the river")
    assert failing.reached == 1
    before, after = answerer.store.body(0), "the river"
    expected = before if point == "corpus_generation.staged" else after
    assert texts(other().ask(QUESTION, EVERYTHING))[0] == expected  # a restart finishes it
    live.edit(1, "", "the tower")
    seen = texts(live.ask(QUESTION, EVERYTHING))
    assert (seen[0], seen[1]) == (expected, "the tower")


def test_passages_that_wait_to_be_embedded_are_never_read(live, tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    write_passages_generation(
        corpus, [WrittenText(0, "Café", "CAFÉ"), WrittenText(None, "", "Ora")]
    )
    assert wait_for(lambda: live.about()["passages"], len(PassageStore.open(corpus)) - 2)
    for retriever in ("dense", "bm25", "hybrid"):
        assert texts(live.ask("the CAFÉ", EVERYTHING, retriever)).keys() == {1, 2, 3, 4, 5}
    monkeypatch.setattr(passage_editor, "MOST_PENDING", 1)
    with pytest.raises(InputError, match="waiting to be embedded"):
        live.add("", "a river")
    monkeypatch.undo()
    live.add("", "a river")
    assert texts(live.ask("the CAFÉ", EVERYTHING)).keys() == set(range(8))


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
        versions, until = set(), time.monotonic() + 120
        while len(versions) < 3 and time.monotonic() < until:
            report = live.ask(QUESTION, EVERYTHING)
            versions.add(report["edits_version"])
            if report["edits_version"]:
                assert texts(report)[0] == f"the river {report['edits_version']}"
        assert len(versions) == 3
    finally:
        stop.set()
        writer.join()
