"""A killed build resumes after its last finished shard and gives the same store."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from realm_jax.corpus import store_writer, worker_pool
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store
from realm_jax.errors import InputError, RealmError
from realm_jax.storage.layout import JOURNAL

PROGRAM = """
import multiprocessing, sys, time
from realm_jax.corpus import store_writer, worker_pool
from realm_jax.corpus.build import build

def report(documents, passages):
    pids = [child.pid for child in multiprocessing.active_children()]
    print(*pids, flush=True)
    time.sleep(0.05)  # so that the kill comes before the end

if __name__ == "__main__":
    worker_pool.BATCH_CHARACTERS, store_writer.SHARD_BATCHES = 1000, 2
    input, out, vocabulary, workers = sys.argv[1:]
    build("jsonl", input, out, vocabulary, passage_pieces=64, workers=int(workers), progress=report)
"""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(worker_pool, "BATCH_CHARACTERS", 1000)
    monkeypatch.setattr(store_writer, "SHARD_BATCHES", 2)


@pytest.fixture
def input(tmp_path, documents):
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"title": d.title, "text": d.body}) for d in documents]
    path.write_text("\n".join([*lines, '{"title": "Blank", "text": "\\u200b"}'] * 3))
    return path


def finished_shards(out):
    journal = out / JOURNAL
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def is_running(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] not in "ZX"


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "the condition did not hold within a minute"
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_build_resumes_and_gives_the_same_store(tmp_path, input, vocabulary, workers):
    program, out = tmp_path / "program.py", tmp_path / "killed"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(input), str(out), str(vocabulary), str(workers)]
    printed = tmp_path / "printed.txt"
    with printed.open("w") as stdout, subprocess.Popen(command, stdout=stdout) as process:
        wait_until(lambda: finished_shards(out) >= 3)
        process.send_signal(signal.SIGKILL)
    pids = {int(pid) for line in printed.read_text().splitlines() for pid in line.split()}
    with pytest.raises(InputError, match="unfinished"):
        PassageStore.open(out)
    if Path("/proc/self").exists():
        assert bool(pids) == (workers == 2)
        wait_until(lambda: not any(map(is_running, pids)))

    from realm_jax.corpus.build import build

    whole = build("jsonl", str(input), tmp_path / "whole", vocabulary, passage_pieces=64)
    rest = build("jsonl", str(input), out, vocabulary, passage_pieces=64, workers=3 - workers)
    assert whole["resumed"] == 0 < rest["resumed"] < rest["passages"]
    for name in ("documents", "passages", "pieces", "skipped", "corpus_hash"):
        assert rest[name] == whole[name]
    assert whole["skipped"] == {"empty_body": 3}
    assert PassageStore.open(out).verify() == []
    assert not (out / JOURNAL).exists()


def interrupted_build(path, documents, vocabulary, after=20):
    """Builds a store until its input raises an error; the finished shards stay."""

    def reading():
        yield from documents[:after]
        raise RealmError("the disk failed")

    with pytest.raises(RealmError, match="disk failed"):
        write_store(path, reading(), vocabulary, passage_pieces=64)
    assert finished_shards(path) >= 2


def test_other_input_is_refused_and_finished_shards_are_kept(tmp_path, documents, vocabulary):
    interrupted_build(tmp_path / "s", documents, vocabulary)
    shards = finished_shards(tmp_path / "s")
    for other in (documents[::-1], documents[:3]):
        with pytest.raises(InputError, match="not that of the unfinished corpus"):
            write_store(tmp_path / "s", other, vocabulary, passage_pieces=64)
    assert finished_shards(tmp_path / "s") == shards
    assert write_store(tmp_path / "s", documents, vocabulary, passage_pieces=64)["resumed"] > 0


def test_input_after_the_last_shard_may_change(tmp_path, documents, vocabulary):
    interrupted_build(tmp_path / "s", documents, vocabulary)
    corrected = [*documents[:20], *documents[25:]]
    summary = write_store(tmp_path / "s", corrected, vocabulary, passage_pieces=64)
    fresh = write_store(tmp_path / "t", corrected, vocabulary, passage_pieces=64)
    assert summary["resumed"] > 0
    assert summary["corpus_hash"] == fresh["corpus_hash"]


def test_other_settings_start_again_from_nothing(tmp_path, documents, vocabulary):
    interrupted_build(tmp_path / "s", documents, vocabulary)
    summary = write_store(tmp_path / "s", documents, vocabulary, passage_pieces=40)
    fresh = write_store(tmp_path / "t", documents, vocabulary, passage_pieces=40)
    assert summary["resumed"] == 0
    assert summary["corpus_hash"] == fresh["corpus_hash"]


@pytest.mark.parametrize("damage", ["half a line", "rubbish", "rows behind the shard"])
def test_data_after_the_last_shard_is_discarded(tmp_path, documents, vocabulary, damage):
    interrupted_build(tmp_path / "s", documents, vocabulary)
    journal = tmp_path / "s" / JOURNAL
    if damage == "half a line":
        with journal.open("ab") as file:
            file.write(b'{"runs": 9')
    elif damage == "rubbish":
        journal.write_bytes(b"\0\n\0\n")
    else:
        os.truncate(tmp_path / "s" / "text.bin", 10**6)
        with (tmp_path / "s" / "pieces.npy").open("ab") as file:
            file.write(b"x" * 1001)
    summary = write_store(tmp_path / "s", documents, vocabulary, passage_pieces=64)
    fresh = write_store(tmp_path / "t", documents, vocabulary, passage_pieces=64)
    assert (summary["resumed"] == 0) == (damage == "rubbish")
    assert summary["corpus_hash"] == fresh["corpus_hash"]
