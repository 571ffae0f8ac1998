"""`realm corpus add` while both jobs run: the trainer swaps to the grown corpus, and goes on."""

import json

import pytest
from support.processes import RealmProcess, logged_swaps
from support.tiny_corpus import write_tiny_corpus
from support.two_jobs import TwoJobs

from realm_jax.corpus.store import PassageStore
from realm_jax.storage.logs import read_log

FAULT = "corpora that grow during a run"
COUNT, STEPS, EVERY = 8, 50, 10
NEW = "The capital of Zor is Zed."


def run_verb(folder, fork_server, *arguments):
    folder.mkdir()
    process = RealmProcess(folder, fork_server, *arguments)
    process.wait(0)
    return process


@pytest.mark.parametrize(
    "killed",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.faults)],
)
def test_the_trainer_swaps_to_the_grown_corpus_without_a_restart(fork_server, tmp_path, killed):
    corpus = write_tiny_corpus(tmp_path, COUNT)
    changes = {
        "retrieval__candidates": COUNT + 2,  # every passage is a candidate of every query
        "masking__scheme": "random_span",
        "masking__rate": 0.2,
    }
    jobs = TwoJobs(tmp_path / "jobs", fork_server, corpus.folder, STEPS, EVERY, **changes)
    try:
        command = jobs.start()
        command.until(lambda: len(logged_swaps(jobs.run)) >= 2, "swaps")
        (tmp_path / "new.jsonl").write_text(json.dumps({"_id": "z", "title": "Zor", "text": NEW}))
        added = ("--format=jsonl", f"--input={tmp_path / 'new.jsonl'}")
        run_verb(tmp_path / "add", fork_server, "corpus", "add", f"--to={corpus.folder}", *added)
        [first, grown] = PassageStore.open(corpus.folder).lineage
        command.until(lambda: read_log(jobs.run.swaps)[-1]["corpus_hash"] == grown, "new passage")
        if killed:
            jobs.kill()
            jobs.finish()
        else:
            command.wait(0)
            jobs.assert_complete()
    finally:
        jobs.kill()
    hashes = [swap["corpus_hash"] for swap in read_log(jobs.run.swaps)]
    assert hashes == sorted(hashes, key=[first, grown].index)
    assert set(hashes) == {first, grown}
    once = ("index", f"--workdir={jobs.run.workdir}", "--once", "--json")
    report = run_verb(tmp_path / "once", fork_server, *once).json()
    assert (report["added"], report["passages"], report["segments"]) == (0, COUNT + 1, 1)
    asked = ("ask", f"--workdir={jobs.run.workdir}", "--json", "The capital of Zor is [MASK].")
    found = run_verb(tmp_path / "ask", fork_server, *asked).json()["passages"]
    assert {one["text"] for one in found if one["id"] == COUNT} == {NEW}
