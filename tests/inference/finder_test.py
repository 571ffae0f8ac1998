"""Finding passages by vectors, by words and by both, also while passages are changed."""

from dataclasses import replace

import numpy as np
import pytest
from support.accented_run import copied

from realm_jax.errors import InputError
from realm_jax.inference import finder
from realm_jax.inference.evaluate import evaluate
from realm_jax.inference.fill_mask import MaskFiller
from realm_jax.inference.run import Run
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.fusion import Fusion
from realm_jax.serve.live_run import LiveRun

QUESTION = "what is the Café since 1900?"
EVERYTHING = 20


@pytest.fixture(scope="module")
def run(answerer):
    return Run(answerer)


@pytest.fixture
def live(answerer, tmp_path):
    return LiveRun(copied(answerer, tmp_path), "bm25")


def ids(hits):
    return [hit.id for hit in hits]


def test_bm25_finds_passages_by_words_and_hybrid_by_both(run, answerer):
    dense, words, both = (
        run.retrieve(QUESTION, len(run), retriever=kind) for kind in ("dense", "bm25", "hybrid")
    )
    assert ids(dense) == ids(run.retrieve(QUESTION, len(run)))
    of_words, scores = answerer.bm25().search([QUESTION], len(run))
    assert ids(words) == of_words[0].tolist()
    assert [hit.score for hit in words] == scores[0].tolist()
    assert words[0].score > 0
    assert sorted(ids(both)) == sorted(ids(dense))
    by_vectors = _scaled({hit.id: hit.score for hit in dense})
    by_words = _scaled({hit.id: hit.score for hit in words if hit.score > 0})
    expected = {i: 0.7 * score + 0.3 * by_words.get(i, 0) for i, score in by_vectors.items()}
    assert {hit.id: hit.score for hit in both} == pytest.approx(expected, rel=1e-4, abs=1e-6)


def _scaled(scores: dict[int, float]) -> dict[int, float]:
    low, high = min(scores.values()), max(scores.values())
    return {i: (score - low) / (high - low) for i, score in scores.items()}


def test_hits_of_an_approximate_search_are_in_the_order_of_their_scores(answerer):
    index, vectors = answerer.index, np.asarray(answerer.index.vectors[:2], np.float32)

    class Reversed(ExactSearcher):
        def search(self, queries, k):
            rows, scores = index.searcher.search(queries, k)
            return rows[:, ::-1].copy(), scores[:, ::-1].copy()

    searcher = Reversed(np.asarray(index.vectors, np.float32))
    ids, scores = finder._by_vectors(replace(index, searcher=searcher), vectors, 4)
    expected, _ = finder._by_vectors(index, vectors, 4)
    np.testing.assert_array_equal(ids, expected)
    assert (np.diff(scores) <= 0).all()


def test_a_fusion_with_all_weight_on_the_vectors_is_dense(run):
    only_dense = Fusion("weighted_sum", 1.0)
    hybrid = run.retrieve(QUESTION, 3, retriever="hybrid", fusion=only_dense)
    assert ids(hybrid) == ids(run.retrieve(QUESTION, 3))


def test_passages_found_by_words_are_weighed_by_the_embedder(run, answerer):
    read = run.ask(QUESTION, 3, retriever="bm25").passages
    found = ids(run.retrieve(QUESTION, 3, retriever="bm25"))
    assert [passage.id for passage in read] == found
    relevance = {hit.id: hit.score for hit in run.retrieve(QUESTION, len(run))}
    scores = np.exp([relevance[i] for i in found])
    np.testing.assert_allclose([p.p_z for p in read], scores / scores.sum(), rtol=1e-3)


def test_a_blank_is_filled_from_passages_found_by_words(answerer):
    text = "since 1900 the CAFÉ was [MASK]."
    filled = MaskFiller(answerer.by("bm25")).fill(text)
    count = answerer.config.retrieval.candidates - 1
    found, _ = answerer.bm25().search([text.replace("[MASK]", "")], count)
    assert [passage.id for passage in filled.passages] == [-1, *found[0].tolist()]


def test_evaluation_uses_the_chosen_retriever(answerer, accents):
    by_words = evaluate(answerer.by("bm25"), accents.questions)
    assert by_words["recall_at"]["1"] > evaluate(answerer, accents.questions)["recall_at"]["1"]


def test_an_unknown_retriever_is_refused(run):
    with pytest.raises(InputError, match="dense or bm25 or hybrid"):
        run.retrieve(QUESTION, retriever="colbert")


def test_a_passage_written_again_keeps_its_rank(live, answerer):
    before = [p["id"] for p in live.ask(QUESTION, EVERYTHING)["passages"]]
    for i in range(len(answerer.store)):
        live.remove(i)
        live.undo(i)
    assert [p["id"] for p in live.ask(QUESTION, EVERYTHING)["passages"]] == before


def test_changed_passages_are_found_by_their_new_words_only(live):
    added = live.add("New", "A zebra.")["id"]
    assert live.ask("which zebra?", 1)["passages"][0]["id"] == added
    live.edit(0, "New", "A gnu.")
    assert live.ask("which gnu?", 1)["passages"][0]["id"] == 0
    live.remove(added)
    live.remove(0)
    for retriever in ("bm25", "hybrid", "dense"):
        read = live.ask("which zebra or gnu?", EVERYTHING, retriever)["passages"]
        assert {added, 0}.isdisjoint(p["id"] for p in read)
        assert len(read) == live.about()["passages"]
