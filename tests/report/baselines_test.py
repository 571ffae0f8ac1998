"""The table of baselines: BM25, the start, the trained encoder, and both together."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.finished_run import random_params
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.corpus.spans import SpanStore
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import question_rows
from realm_jax.report.baselines import LABELS, baselines_section, compare_with_baselines
from realm_jax.report.html import page
from realm_jax.report.run_data import RunData
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.retrieval.fusion import DEPTH, NO_PASSAGE, Fusion
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.recall import EmbeddedCorpus

SIZE = 96  # passages, held-out sentences and questions


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("baselines"), count=SIZE)


@pytest.fixture(scope="module")
def compared(corpus):
    """Config, inputs, embedded corpora, the embedder of questions, and what was measured."""
    config = tiny_config(corpus.folder, evaluation__queries=SIZE)
    config.unlock()
    config.corpus.held_out = str(corpus.folder)
    inputs, params = open_inputs(config), random_params(config, corpus.store.vocabulary.size)
    start, trained = (
        EmbeddedCorpus(config, corpus.store, params[name])
        for name in ("embedder", "question_embedder")
    )
    embedder = params["embedder"]
    found = compare_with_baselines(config, inputs, start, trained, corpus.questions, embedder)
    return SimpleNamespace(
        config=config,
        inputs=inputs,
        start=start,
        trained=trained,
        embedder=embedder,
        found=found,
    )


def rankings(compared, store, texts, rows, embedder=None):
    """Passage ids, best first, by retriever."""
    ids, scores = Bm25.open(store).search(texts, DEPTH)
    words = np.where(scores > 0, ids, NO_PASSAGE), scores
    after = compared.trained.ranking(rows, DEPTH, embedder)
    both, _ = Fusion()(after, words, DEPTH)
    before = compared.start.hits(rows, DEPTH)
    return {"bm25": words[0], "start": before, "realm": after[0], "hybrid": both}


def test_every_retriever_is_measured_on_both_sets(compared):
    found = compared.found
    assert found["k"] == 5
    for name, queries in (("held_out", SIZE), ("questions", SIZE)):
        assert found[name].keys() == {"queries", *LABELS}
        assert found[name]["queries"] == queries
        assert all(0 <= found[name][retriever] <= 1 for retriever in LABELS)
    both = {(found["held_out"][name], found["questions"][name]) for name in LABELS}
    assert len(both) == len(LABELS)


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
    questions, store = corpus.questions, corpus.store
    texts = [question.text for question in questions]
    rows = question_rows(texts, store.vocabulary, 24)
    for name, ranked in rankings(compared, store, texts, rows, compared.embedder).items():
        has = [
            any(question.answers[0] in store.body(i) for i in row[:5] if i != NO_PASSAGE)
            for question, row in zip(questions, ranked.tolist(), strict=True)
        ]
        assert compared.found["questions"][name] == pytest.approx(np.mean(has)), name
    assert compared.found["questions"]["bm25"] > 0


def spaced(pieces):
    return f" {' '.join(map(str, pieces.tolist()))} "


def test_a_sentence_succeeds_by_another_passage_with_the_hidden_words(compared, corpus):
    text, words, shares = compared.inputs.held_out.first(SIZE), corpus.store.vocabulary, {}
    shown = [[i for i in row if i not in words.special] for row in text.queries.ids.tolist()]
    texts = [words.decode(pieces) for pieces in shown]
    for name, ranked in rankings(compared, corpus.store, texts, text.queries).items():
        right = []
        for row, source in enumerate(text.source.tolist()):
            hits = [i for i in ranked[row].tolist() if i not in (NO_PASSAGE, source)][:5]
            hidden = spaced(text.targets[row][text.weights[row] > 0])
            right.append(any(hidden in spaced(corpus.store.body_ids(i)) for i in hits))
        shares[name] = np.mean(right)
    assert {name: compared.found["held_out"][name] for name in LABELS} == pytest.approx(shares)


def test_with_known_evidence_a_sentence_succeeds_by_that_passage(compared, corpus, tmp_path):
    store, ids = corpus.store, np.arange(len(corpus.store))
    spans = [[tuple(span) for span in corpus.spans.of(i).tolist()] for i in ids.tolist()]
    known = SpanStore.write(tmp_path / "known", store, spans, source=ids, evidence=ids)
    text = MaskedTextSource(store, known, compared.config)
    inputs = replace(compared.inputs, held_out=text)
    found = compare_with_baselines(compared.config, inputs, compared.start, compared.trained)
    for name, corpus_vectors in (("start", compared.start), ("realm", compared.trained)):
        assert found["held_out"][name] == corpus_vectors.masked_recall(text.first(SIZE), 5)
    assert found["held_out"]["bm25"] > 0.9 > compared.found["held_out"]["bm25"]


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
