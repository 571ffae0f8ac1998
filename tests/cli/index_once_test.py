"""A finished run whose corpus grows: `realm index --once` brings its index up to date."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.finished_run import STEP, write_finished_run
from support.tiny_corpus import passages, tiny_config, write_tiny_corpus

from realm_jax import config as config_lib
from realm_jax.artifacts import index_writer
from realm_jax.artifacts.current_index import open_current
from realm_jax.artifacts.published_index import publish_index
from realm_jax.artifacts.run_config import newest_config
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.index_builder import once
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage import files
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import RunDir, step_name

QUESTION = "What is the capital of Zor?"
COUNT = 6
NEW, OTHER = "The capital of Zor is Zed.", "The river in Ube was the Obi."


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "run"
    folder.mkdir()
    corpus = write_tiny_corpus(folder, COUNT)
    config = tiny_config(corpus.folder, builder__shard=2)
    return write_finished_run(folder, corpus, config, snapshot=True)


@pytest.fixture
def run(original, tmp_path):
    """A copy of the run with another corpus: a passage more, one less, one with a new text."""
    shutil.copytree(original.workdir, tmp_path / "run")
    texts = [WrittenText(None, "Zor", NEW), WrittenText(2, "Ube", OTHER)]
    write_passages_generation(tmp_path / "run" / "corpus", texts, [4])
    return RunDir(str(tmp_path / "run"))


def assert_up_to_date(run):
    """Each passage that exists, and no other, is in the index with the vector of its text."""
    store, config = PassageStore.open(str(run.root / "corpus")), newest_config(run)
    current = open_current(run, STEP, store)
    assert not len(current.pending)
    ids, index = store.live_ids(), current.index
    encoder = Encoder(config, store.vocabulary.size)
    vectors = encoder.embed_passages(index.query_params, store, ids)
    np.testing.assert_allclose(index.vectors_of(ids), vectors, atol=1e-3)
    found, _ = index.searcher.search(vectors[:1], index.searcher.size)
    np.testing.assert_array_equal(np.sort(index.rows[found[0]]), ids)


def test_index_once_embeds_what_changed_and_verbs_use_it(realm, run, caplog):
    workdir = f"--workdir={run.workdir}"
    asked = realm("ask", workdir, QUESTION, "--k=20", "--json")
    assert {p["id"] for p in asked.json()["passages"]} == {0, 1, 3, 5}
    assert f"realm index {workdir} --once" in caplog.text
    planned = realm("index", workdir, "--once", "--dry-run", "--json").json()
    counts = {"generation": 2, "added": 1, "replaced": 1, "removed": 1}
    assert planned.items() >= counts.items()
    assert not run.index_updates.exists()
    done = realm("index", workdir, "--once", "--json").json()
    assert done == counts | {"passages": COUNT, "segments": 2}
    assert_up_to_date(run)
    caplog.clear()
    asked = realm("ask", workdir, QUESTION, "--k=20", "--json")
    texts = {p["id"]: p["text"] for p in asked.json()["passages"]}
    assert texts.keys() == {0, 1, 2, 3, 5, COUNT}
    assert (texts[2], texts[COUNT], caplog.text) == (OTHER, NEW, "")
    again = realm("index", workdir, "--once", "--json").json()
    assert again == dict.fromkeys(counts, 0) | {"generation": 2, "passages": COUNT, "segments": 2}
    assert realm("check", run.workdir).code == 0


def test_index_once_goes_on_after_an_error_and_repairs_damage(realm, run):
    workdir = f"--workdir={run.workdir}"
    with armed("segment.staged=error"):
        realm("index", workdir, "--once").refused("failpoint")
    with armed("shard.embedded=error") as embedded:
        assert realm("index", workdir, "--once").code == 0
    assert embedded.reached == 0  # the shard of before was used
    [name] = files.list_names(run.segments)
    (run.segments / name / "vectors.npy").write_bytes(b"damaged")
    realm("ask", workdir, QUESTION).refused("damaged", name)
    realm("check", run.workdir).refused(f"segments/{name}/vectors.npy")
    assert realm("check", run.workdir, "--repair").code == 0
    assert realm("ask", workdir, QUESTION).code == 0
    assert realm("index", workdir, "--once").code == 0
    assert_up_to_date(run)


def test_segments_of_large_updates_are_merged_and_those_mostly_deleted_made_again(
    realm, run, monkeypatch
):
    """Larger than `SMALL`, they are of the kind of `search.kind`, at most `segment_passages`."""
    monkeypatch.setattr(once, "SMALL", 2)
    monkeypatch.setattr(index_writer, "SMALL", 2)
    config = newest_config(run)
    config.search.update({"kind": "faiss", "segment_passages": 8})
    files.write_bytes(run.config, config_lib.to_json(config, run.workdir).encode())
    corpus, workdir = f"{run.workdir}/corpus", f"--workdir={run.workdir}"
    for number in range(3):
        new = [WrittenText(None, "Zor", f"The {number} of Zor was {i}.") for i in range(3)]
        write_passages_generation(corpus, new)
        report = realm("index", workdir, "--once", "--json").json()
        assert report["passages"] == COUNT + 3 * (number + 1)
    segments = open_current(run, STEP, PassageStore.open(corpus)).segments
    assert [len(one.rows) for one in segments] == [COUNT, 8, 3]
    assert {one.searcher.kind for one in segments[1:]} == {"faiss"}
    assert_up_to_date(run)
    write_passages_generation(corpus, [], segments[1].rows[:5].tolist())
    realm("index", workdir, "--once")
    segments = open_current(run, STEP, PassageStore.open(corpus)).segments
    assert [len(one.rows) for one in segments] == [COUNT, 6]
    assert set(files.list_names(run.segments)) == {one.name for one in segments[1:]}
    assert_up_to_date(run)


def test_index_once_needs_a_finished_run_and_one_process(realm, run, tmp_path):
    realm("index", f"--workdir={tmp_path}", "--once").refused("no trained networks")
    command = ["index", f"--workdir={run.workdir}", "--once", "--worker=0/2"]
    realm(*command).refused("one process", code=2)


def test_a_corpus_without_any_old_passage_is_indexed(realm, run):
    texts = [WrittenText(i, "", f"the river {i}") for i in range(COUNT)]
    write_passages_generation(str(run.root / "corpus"), texts, [COUNT])
    realm("ask", f"--workdir={run.workdir}", QUESTION).refused("every passage", "--once")
    report = realm("index", f"--workdir={run.workdir}", "--once", "--json").json()
    assert report["passages"] == COUNT
    assert_up_to_date(run)


def test_an_index_that_was_deleted_is_built_again(realm, run):
    workdir = f"--workdir={run.workdir}"
    shutil.rmtree(run.published_index / step_name(STEP))
    realm("ask", workdir, QUESTION).refused("newest export", f"realm index {workdir} --once")
    assert realm("index", workdir, "--once").code == 0
    assert_up_to_date(run)
    assert realm("ask", workdir, QUESTION).code == 0


def test_check_and_index_once_name_the_command_that_publishes_a_lost_snapshot(realm, run):
    for parent in (run.published_index, run.snapshots):
        shutil.rmtree(parent / step_name(STEP))
    fix = f"realm run --workdir={run.workdir}"
    realm("index", f"--workdir={run.workdir}", "--once").refused("the snapshot is missing", fix)
    realm("check", "--repair", run.root)
    checked = realm("check", run.root)  # valid, but it cannot answer
    assert (checked.code, fix in checked.err) == (0, True), checked.err


def test_a_passage_that_is_edited_while_the_index_is_built_again_gets_its_new_vector(
    realm, run, monkeypatch
):
    corpus, workdir = f"{run.workdir}/corpus", f"--workdir={run.workdir}"
    assert realm("index", workdir, "--once").code == 0
    assert realm("corpus", "compact", corpus).code == 0
    read = once.read_snapshot

    def edit_and_read(folder):
        write_passages_generation(corpus, [WrittenText(3, "Zor", "The capital of Zor is Zed.")])
        return read(folder)

    monkeypatch.setattr(once, "read_snapshot", edit_and_read)
    assert realm("index", workdir, "--once").code == 0
    monkeypatch.undo()
    assert realm("index", workdir, "--once").code == 0
    assert_up_to_date(run)


def bytes_under(*folders):
    """Everything on disk, the names of files included."""
    paths = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return b"".join(bytes(path) + path.read_bytes() for path in paths)


def publish_newer_index(run, base, corpus_hash):
    """Publishes the index of a later step, which the export does not use; it has one vector."""
    vectors = np.zeros((1, base.vectors.shape[1]), np.float32)
    fields = {"snapshot_step": STEP + 1, "corpus_hash": corpus_hash, "passages": 1}
    parts = (ExactSearcher(vectors), base.rows[:1], vectors, base.query_params, fields, "{}")
    assert publish_index(run, STEP + 1, *parts)


@pytest.mark.parametrize("newer", [False, True])
def test_nothing_of_a_deleted_passage_is_left_after_compaction_and_index_once(realm, run, newer):
    corpus, workdir = f"{run.workdir}/corpus", f"--workdir={run.workdir}"
    assert realm("index", workdir, "--once").code == 0
    base = open_current(run, STEP, PassageStore.open(corpus)).base
    gone = [passages(COUNT)[4][1][0], OTHER]  # removed before; added later, and replaced
    write_passages_generation(corpus, [WrittenText(2, "Ube", "The river was closed.")])
    assert realm("index", workdir, "--once").code == 0
    traces = [text.encode() for text in gone]
    traces += [of[i].tobytes() for of in (base.vectors, base.searcher.vectors) for i in (2, 4)]
    before = bytes_under(run.workdir)
    assert all(trace in before for trace in traces)
    assert realm("corpus", "compact", corpus).code == 0
    if newer:
        publish_newer_index(run, base, PassageStore.open(corpus).corpus_hash)
    with armed("published_index.staged=error"):
        realm("index", workdir, "--once").refused("failpoint")
    realm("ask", workdir, QUESTION).refused("is replacing it", f"realm index {workdir} --once")
    with armed("shard.embedded=error") as embedded:
        done = realm("index", workdir, "--once", "--json").json()
    assert embedded.reached == 0  # the vectors of the failed call were used
    assert (done["passages"], done["segments"]) == (COUNT, 1)
    left = bytes_under(run.workdir)
    assert [trace for trace in traces if trace in left] == []
    assert_up_to_date(run)
    assert realm("ask", workdir, QUESTION).code == 0
    assert realm("check", run.workdir).code == 0
    assert realm("index", workdir, "--once", "--json").json()["segments"] == 1
