"""The table of baselines: BM25, the start, the trained encoder, and both together."""

import numpy as np
import pytest
from support.finished_run import random_params
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.data.open_qa import question_rows
from realm_jax.report.baselines import LABELS, baselines_section, compare_with_baselines
from realm_jax.report.html import page
from realm_jax.report.run_data import RunData
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.recall import EmbeddedCorpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("baselines"), count=96)


@pytest.fixture(scope="module")
def compared(corpus):
    config = tiny_config(corpus.folder, evaluation__queries=32)
    config.unlock()
    config.corpus.held_out = str(corpus.folder)
    inputs, params = open_inputs(config), random_params(config, corpus.store.vocabulary.size)
    start, trained = (
        EmbeddedCorpus(config, corpus.store, params[name])
        for name in ("embedder", "question_embedder")
    )
    questions = corpus.questions[:16]
    found = compare_with_baselines(
        config, inputs, start, trained, questions, params["question_embedder"]
    )
    return config, inputs, found


def test_every_retriever_is_measured_on_both_sets(compared):
    _, _, found = compared
    assert found["k"] == 5
    for name, queries in (("held_out", 32), ("questions", 16)):
        assert found[name].keys() == {"queries", *LABELS}
        assert found[name]["queries"] == queries
        assert all(0 <= found[name][retriever] <= 1 for retriever in LABELS)


def test_questions_are_embedded_with_the_embedder_of_the_call(corpus):
    config = tiny_config(corpus.folder)
    params = random_params(config, corpus.store.vocabulary.size)
    one, other = params["embedder"], params["question_embedder"]
    rows = question_rows([q.text for q in corpus.questions[:8]], corpus.store.vocabulary, 32)
    used = EmbeddedCorpus(config, corpus.store, one)
    used.hits(rows, 5)
    fresh = EmbeddedCorpus(config, corpus.store, one).hits(rows, 5, other)
    np.testing.assert_array_equal(used.hits(rows, 5, other), fresh)
    assert not np.array_equal(used.hits(rows, 5), fresh)


def test_a_question_succeeds_by_a_passage_with_its_answer(compared, corpus):
    ids, _ = Bm25.open(corpus.store).search([q.text for q in corpus.questions[:16]], 5)
    has = [
        any(question.answers[0] in corpus.store.body(i) for i in row)
        for question, row in zip(corpus.questions[:16], ids.tolist(), strict=True)
    ]
    assert compared[2]["questions"]["bm25"] == pytest.approx(np.mean(has))
    assert np.mean(has) > 0


def test_a_sentence_succeeds_by_another_passage_with_the_hidden_words(compared, corpus):
    config, inputs, found = compared
    text, words = inputs.held_out.first(32), corpus.store.vocabulary
    right = []
    for row in range(32):
        shown = [i for i in text.queries.ids[row].tolist() if i not in words.special]
        ids, scores = Bm25.open(corpus.store).search([words.decode(shown)], len(corpus.store))
        hits = ids[0][(scores[0] > 0) & (ids[0] != text.source[row])][: config.evaluation.recall_k]
        hidden = words.decode(text.targets[row][text.weights[row] > 0].tolist())
        bodies = [words.decode(corpus.store.body_ids(i).tolist()) for i in hits.tolist()]
        spaced = [f" {b} ".replace(".", " .").replace("?", " ?") for b in bodies]
        right.append(any(f" {hidden} " in body for body in spaced))
    assert found["held_out"]["bm25"] == pytest.approx(np.mean(right))
    assert np.mean(right) > 0


def section(config, records, **shares):
    """The section of a run with these log records and shares of held-out sentences."""
    measured = {"baselines": {"k": 5, "held_out": {"queries": 8, **shares}}}
    run = RunData(RunDir("run"), config, {"realm": records}, [], [], {}, {}, measured)
    return page("title", "", baselines_section(run)).decode()


@pytest.mark.parametrize(
    ("shares", "advice"),
    [
        ((1.0, 0.5, 0.25, 0.25), "BM25 is best: use"),
        ((1.0, 1.0, 1.0, 1.0), "several have the same largest share: BM25, no training; encoder"),
        ((0.0, 0.0, 0.0, 0.0), "no retriever finds a right passage"),
        ((0.5, 0.25, 0.5, 0.25), "share: BM25, no training; encoder after training."),
        ((0.25, 0.5, 0.25, 0.5), "share: encoder before training; BM25 and encoder after"),
    ],
)
def test_the_best_retriever_is_named_and_equal_ones_are_named_together(shares, advice):
    named = dict(zip(("bm25", "start", "realm", "hybrid"), shares, strict=True))
    assert advice in section(tiny_config(), [{"step": 1}], **named)


def test_the_report_says_why_the_encoder_was_not_changed():
    config = tiny_config(stages__realm__least_utility=0.5)
    last = {"step": 6, "held_out_retrieval_utility": 0.125, "embedder_kept": 0.0}
    same = {"bm25": 0.25, "start": 0.75, "realm": 0.75, "hybrid": 0.5}
    text = section(config, [last], **same)
    assert "+0.12, below stages.realm.least_utility = 0.5" in text
    assert "training did not change its share" in text and "worse" not in text
    assert "+0.12 after 2 steps, below" in section(config, [last | {"trained_steps": 2.0}], **same)
    kept = section(config, [last | {"embedder_kept": 1.0}], **same | {"realm": 0.5})
    assert "least_utility" not in kept and "training made the encoder worse" in kept
