"""A week of edits, with kills: answers equal those of a fresh build, disk and memory do not grow.

A process changes a corpus as a server, `realm corpus` and `realm index --once` do, one operation
after the other, until it is killed at a random file operation. The next process goes on.
"""

import json
import multiprocessing
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from support.compiler_flags import quick_compilation
from support.finished_run import STEP, write_finished_run
from support.history import assert_updates
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.artifacts.current_index import open_current
from realm_jax.artifacts.run_config import newest_config
from realm_jax.artifacts.verify import check
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generations import WrittenText
from realm_jax.corpus.grow import add_documents, remove_documents
from realm_jax.corpus.store import PassageStore
from realm_jax.index_builder.once import run_once
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.passage_editor import PassageEditor
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import RunDir

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["support.finished_run", "realm_jax.inference.answerer", "pytest"])
LEAST, MOST = 40, 80  # passages, between which the corpus stays
OF_PROCESS = 600  # operations; a process may be killed before
MOST_FILES = 80_000  # file operations, of which 600 operations do about 63,000; a random one kills
# Bytes by which the memory of a process may grow after its first tenth: in all, and for each
# `realm index --once`, which compiles its programs again.
MOST_GROWTH, OF_INDEX = 15e6, 8e6
KINDS = ("edit", "add", "remove", "add document", "remove document", "index", "compact")
WEIGHTS = (40, 25, 25, 4, 4, 1.5, 0.5)


class Edits:
    """Random operations on a run and its corpus."""

    def __init__(self, folder: Path, seed: int):
        self._workdir, self._corpus = str(folder), folder / "corpus"
        self._input = folder.parent / "new.jsonl"
        self._rng, self._seed, self._number, self.indexed = random.Random(seed), seed, 0, 0
        answerer = Answerer.open(self._workdir)
        self._editor, self._current = PassageEditor(answerer), answerer.current

    def one(self) -> None:
        """Does one operation."""
        self._number += 1
        live = self._current.store.newest().live_ids().tolist()
        [kind] = self._rng.choices(KINDS, WEIGHTS)
        if len(live) > MOST:
            kind = "remove"
        if len(live) < LEAST:
            kind = "add"
        chosen, text = self._rng.choice(live), f"the {self._seed} {self._number} river"
        if kind in ("edit", "add", "remove"):
            written = WrittenText(chosen if kind == "edit" else None, "Zor", text)
            change = ([], [chosen]) if kind == "remove" else ([written], [])
            _, self._current = self._editor.change(self._current, *change)
        elif kind == "add document":
            document = {
                "_id": f"d{self._rng.randrange(9)}",
                "title": "Ube",
                "text": f"{text}. " * 3,
            }
            self._input.write_text(json.dumps(document))
            add_documents(self._corpus, "jsonl", str(self._input))
        elif kind == "remove document":
            store = PassageStore.open(self._corpus)
            names = sorted({store.document_id(i) for i in live} - {""})
            if names:
                remove_documents(self._corpus, names[:1])
        elif kind == "index":
            self.indexed += 1
            run_once(self._workdir, threading.Event())
        else:
            compact(self._corpus)


def resident():
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def work(folder, seed, killed_at, operations):
    """Does operations until the process is killed; checks that its memory does not grow."""
    os.environ["XLA_FLAGS"] = quick_compilation()  # one device
    edits, before = Edits(folder, seed), 0
    with armed(f"file:{killed_at}=kill"):
        for number in range(operations):
            edits.one()
            with (folder.parent / "done").open("a") as done:
                done.write(".")
            if number == operations // 10:
                before = resident()
    grown = resident() - before
    print(f"process {seed}: {grown / 1e6:.1f} MB more, {edits.indexed} times index", flush=True)
    assert grown < MOST_GROWTH + OF_INDEX * edits.indexed, (before, grown)


@pytest.fixture
def folder(tmp_path):
    """A finished run with its corpus."""
    folder = tmp_path / "run"
    folder.mkdir()
    tiny = write_tiny_corpus(folder, 60)
    config = tiny_config(tiny.folder, model__layers=1)
    write_finished_run(folder, tiny, config, snapshot=True)
    return folder


def assert_equals_fresh(current, encoder):
    """The index finds what exact search over new vectors of all passages finds."""
    ids = current.store.live_ids()
    assert not len(current.pending)
    assert current.index.searcher.size == len(ids)
    vectors = encoder(current.store, ids)
    np.testing.assert_allclose(current.index.vectors_of(ids), vectors, atol=2e-3)
    queries = np.random.default_rng(0).normal(size=(20, vectors.shape[1])).astype(np.float32)
    for k in (1, 5, len(ids)):
        _, scores = ExactSearcher(vectors).search(queries, k)
        rows, found = current.index.searcher.search(queries, k)
        passages = current.index.rows[rows]
        theirs = current.index.vectors_of(passages).astype(np.float32)
        np.testing.assert_allclose(found, scores, atol=2e-2)
        np.testing.assert_allclose(np.einsum("be,bke->bk", queries, theirs), found, atol=2e-2)
        assert {len(set(row)) for row in passages.tolist()} == {k}


def disk_bytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("operations", [10_000])
def test_a_week_of_edits_with_kills_equals_a_fresh_build(folder, operations):
    run, corpus, rng = RunDir(str(folder)), folder / "corpus", random.Random(0)
    base = open_current(run, STEP, PassageStore.open(corpus)).base
    encoder = Encoder(newest_config(run), PassageStore.open(corpus).vocabulary.size)
    params, sizes, killed, seed = encoder.place(base.query_params), [], 0, 0
    done = folder.parent / "done"
    done.touch()
    while done.stat().st_size < operations:
        seed += 1
        left = min(OF_PROCESS, operations - done.stat().st_size)
        arguments = (folder, seed, rng.randrange(1, MOST_FILES), left)
        process = PROCESSES.Process(target=work, args=arguments)
        process.start()
        process.join()
        assert process.exitcode in (0, -9)
        killed += process.exitcode == -9
        run_once(run.workdir, threading.Event())
        current = open_current(run, STEP, PassageStore.open(corpus))
        assert_equals_fresh(current, lambda store, ids: encoder.embed_passages(params, store, ids))
        assert_updates(run, corpus)
        assert len(current.segments) < 8
        compact(corpus)
        report = run_once(run.workdir, threading.Event())
        assert report["segments"] == 1
        assert check(run.root)["ok"]
        store = PassageStore.open(corpus)
        sizes.append((len(store), store.generation, disk_bytes(folder)))
        print(killed, len(current.segments), sizes[-1], flush=True)
    assert killed > seed / 4
    # An id is never used again and costs some bytes, and so does the hash of a generation; nothing
    # else is left of a change.
    left = [size - 100 * ids - 75 * generations for ids, generations, size in sizes]
    assert max(left) < 1.2 * left[0], sizes
