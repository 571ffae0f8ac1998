"""Processes that change a corpus or the index of a finished run are killed at each failpoint.

After the kill, the corpus has the old passages or the new ones, and each passage that is found has
the vector of its text. The same command then finishes. `make faults` runs all cases.
"""

import http.client
import json
import shutil
import signal
import threading
import urllib.request

import numpy as np
import pytest
from support.finished_run import STEP, write_finished_run
from support.history import assert_updates
from support.processes import RealmProcess
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.artifacts.current_index import open_current
from realm_jax.artifacts.run_config import newest_config
from realm_jax.artifacts.verify import check
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.grow import add_documents
from realm_jax.corpus.store import PassageStore, verify
from realm_jax.index_builder.once import run_once
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage import commit
from realm_jax.storage.failpoints import VARIABLE
from realm_jax.storage.layout import RunDir, step_name

FAULT = "failpoints of a growing corpus"
COUNT, MOST_EDITS = 6, 6
GENERATION = [
    "corpus_generation.staged",
    "corpus_generation.committed",
    "corpus_generation.published",
]
UPDATE = ["segment.staged", "segment.committed", "index_update.staged", "index_update.committed",
          "index_update.published", "retention.unlisted", "segment.unlisted"]  # fmt: skip
REBUILD = ["searcher.written", "published_index.staged", "published_index.committed",
           "published_index.published", "index_update.committed", "segment.unlisted"]  # fmt: skip
POINTS = {
    "add": GENERATION,
    "remove": GENERATION,
    "compact": [*GENERATION, "corpus.unlisted"],
    "index": ["shard.embedded", *UPDATE],
    "index after a compaction": REBUILD,
    "serve": [*GENERATION, *UPDATE],
}
IN_MAKE_TEST = [("add", "corpus_generation.committed"), ("index", "index_update.committed")]
COMMANDS = {
    "add": "corpus add --to={0}/run/corpus --format=jsonl --input={0}/new.jsonl",
    "remove": "corpus remove --from={0}/run/corpus --ids=a",
    "compact": "corpus compact {0}/run/corpus",
    "index": "index --workdir={0}/run --once",
    "index after a compaction": "index --workdir={0}/run --once",
}


def write_documents(path, **texts):
    lines = [{"_id": i, "title": "Zor", "text": text} for i, text in texts.items()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run with two index updates, whose corpus has changed since the second one."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "run").mkdir()
    tiny = write_tiny_corpus(folder / "run", COUNT)
    config = tiny_config(tiny.folder, builder__shard=2)
    run = write_finished_run(folder / "run", tiny, config, snapshot=True)
    write_documents(folder / "old.jsonl", a="The river was old.", b="The capital was old.")
    write_documents(folder / "new.jsonl", a="The river is new.", c="The capital is new.")
    add_documents(tiny.folder, "jsonl", str(folder / "old.jsonl"))
    run_once(str(run.workdir), threading.Event())
    write_passages_generation(tiny.folder, [WrittenText(0, "", "was the river")], [1])
    return folder


@pytest.fixture(scope="module")
def encoder(original):
    """The embedder of the run: from texts of a store to vectors."""
    run = RunDir(original / "run")
    index = open_current(run, STEP, PassageStore.open(original / "run" / "corpus")).index
    store = PassageStore.open(original / "run" / "corpus")
    made = Encoder(newest_config(run), store.vocabulary.size)
    params = made.place(index.query_params)
    return lambda store, ids: made.embed_passages(params, store, ids)


def prepared(original, folder, command):
    """A copy, in the state in which the command has most to do."""
    shutil.copytree(original, folder)
    run, corpus = RunDir(folder / "run"), folder / "run" / "corpus"
    if command == "index after a compaction":
        run_once(str(run.workdir), threading.Event())
        compact(corpus)
    elif command == "serve":
        run_once(str(run.workdir), threading.Event())
    return run, corpus


def texts(corpus):
    store = PassageStore.open(corpus)
    ids = store.live_ids().tolist()
    return {i: (store.title(i), store.body(i), store.document_id(i)) for i in ids}


def assert_consistent(run, corpus, encoder, *, complete):
    """What is found has the vector of its text; if `complete`, everything is found."""
    current = open_current(run, STEP, PassageStore.open(corpus))
    found = np.sort(np.delete(current.index.rows, current.index.hidden))
    expected = np.setdiff1d(current.store.live_ids(), current.pending)
    np.testing.assert_array_equal(found, expected)
    vectors = encoder(current.store, found)
    np.testing.assert_allclose(current.index.vectors_of(found), vectors, atol=2e-3)
    assert not complete or not len(current.pending)


class Commands:
    """Runs one command of `COMMANDS`, or a server that gets edits, as a process."""

    def __init__(self, folder, fork_server, command):
        self._folder, self._server, self._command, self._count = folder, fork_server, command, 0

    def _start(self, arguments, point):
        self._count += 1
        folder = self._folder / f"process_{self._count}"
        folder.mkdir()
        added = {VARIABLE: point} if point else {}
        return RealmProcess(folder, self._server, *arguments, added=added)

    def __call__(self, point=""):
        """Runs the command; returns the exit code, and the passages before and after its change.

        Those after it are known for edits only.
        """
        if self._command == "serve":
            return self._serve(point)
        before = texts(self._folder / "run" / "corpus")
        arguments = COMMANDS[self._command].format(self._folder).split(" ")
        process = self._start(arguments, point)
        return process.process.wait(600.0), before, None

    def _serve(self, point):
        workdir = f"--workdir={self._folder}/run"
        process = self._start(["serve", "--port=0", workdir], point)
        try:
            process.until(lambda: "serving http" in process.out.read_text(), "server", 600.0)
            url = process.out.read_text().split()[1]
            for number in range(MOST_EDITS):
                i, text = 2 * (number % 2), f"the {number} river"
                before = texts(self._folder / "run" / "corpus")
                after = before | {i: ("", text, "")}
                if not _edit(url, {"id": i, "title": "", "text": text}):
                    break
                assert texts(self._folder / "run" / "corpus") == after
            process.process.send_signal(signal.SIGTERM)
            return process.process.wait(600.0), before, after
        finally:
            process.process.send_signal(signal.SIGKILL)


def _edit(url, edit):
    """Whether the server has answered."""
    headers, data = {"Content-Type": "application/json"}, json.dumps(edit).encode()
    request = urllib.request.Request(f"{url}api/passages", data, headers, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            return reply.status == 200
    except (OSError, http.client.HTTPException):  # the server was killed
        return False


def marks(command, point):
    return [] if (command, point) in IN_MAKE_TEST else [pytest.mark.faults]


@pytest.mark.parametrize(
    ("command", "point"),
    [
        pytest.param(command, point, id=f"{command}-{point}", marks=marks(command, point))
        for command, points in POINTS.items()
        for point in points
    ],
)
def test_the_same_command_finishes_after_a_kill(
    original, encoder, fork_server, tmp_path, command, point
):
    run, corpus = prepared(original, tmp_path / "case", command)
    execute = Commands(tmp_path / "case", fork_server, command)
    code, before, after = execute(point)
    assert code == -signal.SIGKILL, "the point was not reached"
    seen = texts(corpus)
    assert [one for one in verify(corpus) if "realm corpus compact" not in one.get("fix", "")] == []
    if commit.is_published(run.published_index / step_name(STEP)):  # not while it is replaced
        assert_consistent(run, corpus, encoder, complete=False)
    assert execute()[0] == 0
    assert seen in (before, after or texts(corpus))
    assert check(run.root)["ok"]
    assert verify(corpus) == []
    complete = command.startswith(("index", "serve"))
    assert_consistent(run, corpus, encoder, complete=complete)
    assert_updates(run, corpus, finished=command.startswith("index"))
