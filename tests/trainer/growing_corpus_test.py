"""A knowledge corpus that grows while a run trains: the next index covers it, replays repeat."""

import dataclasses
import gc
from pathlib import Path

import jax
import numpy as np
import pytest
from support import finished_run
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.artifacts.published_index import open_index
from realm_jax.corpus.compaction import compact
from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.errors import MismatchError
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.inputs import corpora_of, open_inputs
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.realm_stage import RealmStage

COUNT, EVERY = 8, 2


@pytest.fixture
def run(tmp_path):
    """Config, run folder and params; the index of step 0 covers the first generation."""
    corpus = write_tiny_corpus(tmp_path, COUNT)
    # Every passage is a candidate of every query.
    settings = {"refresh__every": EVERY, "retrieval__candidates": COUNT + 2, "model__layers": 1}
    config = tiny_config(
        corpus.folder, masking__scheme="random_span", masking__rate=0.2, **settings
    )
    params = finished_run.random_params(config, corpus.store.vocabulary.size)
    run = RunDir(tmp_path / "run")
    finished_run.publish_random_index(run, corpus, config, params["embedder"], step=0)
    return config, run, params, corpus


def grow(corpus):
    new = [WrittenText(2, "Ube", "What was Ube in 2001?"), WrittenText(None, "Zor", "Zor is.")]
    write_passages_generation(corpus.folder, new, [5])
    return dataclasses.replace(corpus, store=PassageStore.open(corpus.folder))


def batches(config, run, inputs):
    """Those of four steps, which search the indexes of steps 0 and 2."""
    accepts = Knowledge(inputs.knowledge, config).accepts
    index = IndexManager(run, config, accepts, [], set)
    stage = RealmStage(config, inputs.knowledge, inputs.text, inputs.held_out, index)
    try:
        return [stage.batch(step) for step in range(2 * EVERY)], stage._knowledge.of(index.current)
    finally:
        stage.close()


def test_batches_read_the_generation_of_their_index_and_are_repeated_bit_for_bit(run):
    config, folder, params, corpus = run
    inputs = open_inputs(config)
    grown = grow(corpus)
    rows = grown.store.live_ids()
    finished_run.publish_random_index(
        folder, grown, config, params["embedder"], step=EVERY, rows=rows
    )
    made, store = batches(config, folder, inputs)  # of the run that was started before
    assert store.body(2) == "What was Ube in 2001?"
    assert len(inputs.knowledge) == COUNT
    resumed = open_inputs(config, corpora_of(inputs))
    again, _ = batches(config, folder, resumed)
    jax.tree.map(np.testing.assert_array_equal, made, again)
    fresh = open_inputs(config)
    assert (len(fresh.knowledge), len(resumed.knowledge)) == (COUNT + 1, COUNT)


def test_a_compaction_of_the_corpus_does_not_stop_a_resumed_run(run, caplog):
    config, folder, params, corpus = run
    started = corpora_of(open_inputs(config))
    grown = grow(corpus)
    rows = grown.store.live_ids()
    finished_run.publish_random_index(
        folder, grown, config, params["embedder"], step=EVERY, rows=rows
    )
    compact(corpus.folder)
    made, _ = batches(config, folder, open_inputs(config, started))
    assert len(made) == 2 * EVERY
    assert "not repeated bit for bit" in caplog.text


@pytest.mark.slow
def test_the_generations_of_a_long_run_do_not_stay_open(run):
    config, folder, _, corpus = run
    knowledge, opened = Knowledge(corpus.store, config), []
    first = open_index(folder.published_index / step_name(0))
    for number in range(12):
        text = WrittenText(None, f"Town {number}", f"Town {number} is far.")
        write_passages_generation(corpus.folder, [text], [])
        newest = PassageStore.open(corpus.folder)
        index = dataclasses.replace(
            first, manifest={**first.manifest, "corpus_hash": newest.corpus_hash}
        )
        assert knowledge.of(index).passages() == COUNT + number + 1
        del newest
        gc.collect()
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
    # A layer has 12 files. With all layers of all generations it would be 685 more.
    assert max(opened) - opened[0] < 20 * len(opened), opened


def test_an_index_of_another_corpus_or_of_a_grown_one_with_reranking_is_refused(run, tmp_path):
    config, folder, _, corpus = run
    knowledge = Knowledge(corpus.store, config)
    assert knowledge.accepts(corpus.store.corpus_hash)
    grown = grow(corpus)
    assert knowledge.accepts(grown.store.corpus_hash)
    assert not knowledge.accepts("another")
    config.retrieval.rerank = 4
    assert not Knowledge(corpus.store, config).accepts(grown.store.corpus_hash)
    index = IndexManager(folder, config, {"another"}.__contains__, [], set)
    try:
        with pytest.raises(MismatchError, match="another corpus_hash"):
            index._opened(0)
    finally:
        index.close()
