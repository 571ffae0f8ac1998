"""Writers of generations are killed, race and find damage; nothing is lost, nothing is mixed."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal

import numpy as np
import pytest

from realm_jax.corpus import generation_writer, layered_store, lineage
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generation_files import folder_of, newest_generation
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.grow import add_documents, remove_documents
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.corpus.store_writer import write_store
from realm_jax.errors import DamageError, RealmError
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import GENERATIONS, POINTER

PROCESSES = multiprocessing.get_context("forkserver")  # does not have the threads of pytest
PROCESSES.set_forkserver_preload(["realm_jax.corpus.grow", "realm_jax.corpus.compaction", "pytest"])


@pytest.fixture(scope="module")
def grown(tmp_path_factory, documents, vocabulary):
    """A corpus of three layers, and an input of documents."""
    folder = tmp_path_factory.mktemp("grown")
    write_store(folder / "corpus", documents[:4], vocabulary, passage_pieces=64)
    mark_spans(PassageStore.open(folder / "corpus"))
    for n in range(2):
        edit(folder / "corpus", n)
    lines = [
        {"_id": "é2", "title": "Two", "text": "Now the river is short."},
        {"_id": "new", "title": "New", "text": "Old café in Berlin, 1848."},
        {"title": "No id", "text": "A mountain in Vienna."},
    ]
    (folder / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.fixture
def corpus(grown, tmp_path, monkeypatch):
    monkeypatch.setattr(generation_writer, "MOST_LAYERS", 3)
    shutil.copytree(grown, tmp_path / "copy")
    return tmp_path / "copy" / "corpus"


def edit(corpus, n=7):
    """Writes two passages at once, and removes a third one if it exists."""
    store = PassageStore.open(corpus)
    removed = [i for i in (5 + n,) if store.is_live(np.array([i]))[0]]
    written = [WrittenText(i, "E", f"flows {n} near") for i in (0, 1)]
    write_passages_generation(corpus, written, removed)


def edit_repeatedly(corpus):
    """Three edits and an addition with each; a compaction among them."""
    for n in range(3):
        number = f"{os.getpid()} {n}"
        written = [WrittenText(i, "E", f"flows {number} near") for i in (0, 1)]
        write_passages_generation(corpus, [*written, WrittenText(None, "N", f"old {number}")])
        if n == 1:
            compact(corpus)


CHANGES = {
    "edit repeatedly": edit_repeatedly,
    "edit": edit,
    "add": lambda corpus: add_documents(corpus, "jsonl", str(corpus.parent / "in.jsonl")),
    "remove": lambda corpus: remove_documents(corpus, ["é1"]),
    "compact": compact,
}


def texts(corpus):
    """All passages that exist, with the document of each, by id."""
    store = PassageStore.open(corpus)
    ids = store.live_ids().tolist()
    return {i: (store.title(i), store.body(i), store.document_id(i)) for i in ids}


def run(name, corpus, spec):
    """Makes a change in a process of its own, with an armed failpoint."""
    generation_writer.MOST_LAYERS = 3
    with armed(spec) if spec else contextlib.nullcontext():
        CHANGES[name](corpus)


def is_killed(name, corpus, spec):
    """Whether a process that makes a change reaches a failpoint, which kills it."""
    process = PROCESSES.Process(target=run, args=(name, corpus, spec))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), (spec, process.exitcode)
    return process.exitcode != 0


def check_killed(corpus, name, spec):
    """Kills a change at a failpoint; returns False if it was not reached."""
    before, change = texts(corpus), CHANGES[name]
    if not is_killed(name, corpus, spec):
        return False
    found = texts(corpus)
    unfinished = [one for one in verify(corpus) if "realm corpus compact" not in one.get("fix", "")]
    assert unfinished == [], (name, spec)
    change(corpus)  # the same call finishes, or does it again
    after = texts(corpus)
    assert found in (before, after), (name, spec)
    assert verify(corpus) == [], (name, spec)
    generation = PassageStore.open(corpus).generation
    change(corpus)
    assert texts(corpus) == after
    if name != "compact":
        assert PassageStore.open(corpus).generation == generation
    return True


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("edit", ["corpus_generation.staged", "corpus_generation.committed:2"]),
        ("compact", ["corpus_generation.committed", "corpus.unlisted"]),
    ],
)
def test_a_killed_change_is_done_or_not_done_and_can_be_repeated(corpus, tmp_path, name, points):
    original = shutil.copytree(corpus.parent, tmp_path / "original")
    for number, point in enumerate(points):
        copy = shutil.copytree(original, tmp_path / str(number)) / "corpus"
        assert check_killed(copy, name, point)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edit", "add", "remove", "compact"])
def test_a_change_is_killed_at_every_file_operation(corpus, tmp_path, name):
    original = shutil.copytree(corpus.parent, tmp_path / "original")
    for point in ("file", "corpus_generation", "corpus"):
        for n in range(1, 1000):
            copy = shutil.copytree(original, tmp_path / f"{point}{n}") / "corpus"
            if not check_killed(copy, name, f"{point}:{n}"):
                break
            shutil.rmtree(copy.parent)
        assert n > 5 if point == "file" else n > 1 or (name, point) != ("compact", "corpus")


def test_two_writers_lose_nothing_and_a_reader_sees_whole_generations(corpus):
    before = texts(corpus)
    writers = [PROCESSES.Process(target=run, args=("edit repeatedly", corpus, "")) for _ in "12"]
    for writer in writers:
        writer.start()
    seen = []
    while any(writer.is_alive() for writer in writers):
        store = PassageStore.open(corpus)
        seen.append(store.generation)
        assert store.body(0) == store.body(1)
        assert store.passages() == len(store.live_ids())
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen == sorted(seen)
    after = texts(corpus)
    new = sorted(body for i, (_, body, _) in after.items() if i not in before)
    assert new == sorted(f"old {writer.pid} {n}" for writer in writers for n in range(3))
    assert verify(corpus) == []
    store = PassageStore.open(corpus)
    assert len(store.lineage) == store.generation


def test_a_reader_that_a_compaction_overtakes_opens_the_compacted_generation(corpus, monkeypatch):
    newest, before, done = layered_store.newest_generation, texts(corpus), []

    def overtaken(path):
        found = newest(path)
        if not done:
            done.append(True)
            compact(corpus)  # deletes the generation that is opened next
        return found

    monkeypatch.setattr(layered_store, "newest_generation", overtaken)
    old = PassageStore.open(corpus)
    assert len(old.layers) == 1
    assert texts(corpus) == before
    edit(corpus, 9)
    compact(corpus)
    assert (old.body(0), old.lineage[-1]) == (before[0][1], old.corpus_hash)  # still readable


def test_every_damaged_file_is_named_and_never_read_as_an_older_generation(corpus):
    edit(corpus)
    store = PassageStore.open(corpus)
    newest = newest_generation(corpus)
    for layer in store.layers[-1:]:
        folder = folder_of(corpus, layer)
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name, content = str(path.relative_to(corpus)), path.read_bytes()
            altered = content[:-1] + bytes([content[-1] ^ 1]) if content else b"x"
            path.write_bytes(altered)
            assert name in [problem["file"] for problem in verify(corpus)], name
            path.write_bytes(content[:-1] if content else b"x")
            with pytest.raises(DamageError, match=path.name):
                PassageStore.open(corpus)
            path.unlink()
            with pytest.raises(DamageError):
                PassageStore.open(corpus)
            with pytest.raises(RealmError):
                edit(corpus, 8)  # no writer builds on a damaged generation
            assert newest_generation(corpus) == newest
            assert verify(corpus), name
            path.write_bytes(content)
    pointer = corpus / GENERATIONS / POINTER
    pointer.write_bytes(b"{")
    assert [problem["file"] for problem in verify(corpus)] == [f"{GENERATIONS}/{POINTER}"]
    assert PassageStore.open(corpus).generation == newest
    edit(corpus, 8)
    assert verify(corpus) == []
    assert texts(corpus)[0][1] == "flows 8 near"


def test_a_damaged_file_of_the_lineage_is_named_and_no_writer_builds_on_it(corpus, monkeypatch):
    monkeypatch.setattr(lineage, "OF_FILE", 4)
    for number in range(4):
        edit(corpus, number)
    paths = sorted((corpus / GENERATIONS / "lineage").iterdir())
    assert len(paths) > 1
    assert verify(corpus) == []
    for path in paths:
        name, content = f"{GENERATIONS}/lineage/{path.name}", path.read_bytes()
        for damaged in (content[:-1], content.replace(b"a", b"b", 1), None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            assert [problem["file"] for problem in verify(corpus)] == [name]
            with pytest.raises(DamageError, match=path.name):
                PassageStore.open(corpus)
            with pytest.raises(DamageError, match=path.name):
                edit(corpus, 8)
            path.write_bytes(content)
    compact(corpus)
    assert len(PassageStore.open(corpus).lineage) == newest_generation(corpus)
