"""Measures of a judged set: known values, merged passages, and intervals between runs."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from etils import epath
from support.finished_run import write_finished_run
from support.judged import write_judged_set, write_judged_store
from support.tiny_corpus import tiny_config

from realm_jax.data.judged_sets import read_judged_set
from realm_jax.data.trec_runs import read_run
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.judged import (
    _documents,
    _query_length,
    compare,
    evaluate_judged,
    measure,
    retrieve_documents,
)

QRELS = {"q1": {"a": 2, "b": 1, "c": 0}, "q2": {"x": 1}, "q3": {"y": 1}}
RUN = {
    "q1": {"q1": 9.0, "c": 3.0, "a": 2.0, "b": 1.0},
    "q2": {"z": 1.0, "x": 0.5},
    "q9": {"a": 1.0},
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return read_judged_set(write_judged_set(tmp_path_factory.mktemp("judged") / "set"))


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged_run")
    corpus = write_judged_store(folder)
    workdir = folder / "run"
    write_finished_run(workdir, corpus, tiny_config(corpus.folder), tuned=False)
    return Answerer.open(str(workdir))


def test_measures_are_those_of_trec():
    values = measure(QRELS, RUN)
    gain = (2 / np.log2(3) + 1 / np.log2(4)) / (2 + 1 / np.log2(3))
    np.testing.assert_allclose(values["ndcg_at_10"], [gain, 1 / np.log2(3), 0])
    np.testing.assert_allclose(values["map"], [(1 / 2 + 2 / 3) / 2, 1 / 2, 0])
    np.testing.assert_allclose(values["mrr_at_10"], [1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(values["recall_at_5"], [1, 1, 0])
    assert {value.shape for value in values.values()} == {(3,)}


def test_map_counts_the_first_hundred_documents():
    run = {"q": {f"d{rank}": -float(rank) for rank in range(1000)}}
    cut = {"q": dict(list(run["q"].items())[:100])}
    qrels = {"q": {"d50": 1, "d300": 1}}
    assert measure(qrels, run)["map"] == measure(qrels, cut)["map"] > 0


def test_an_interval_of_paired_differences_has_the_mean_inside():
    rng = np.random.default_rng(1)
    mine = rng.uniform(size=200)
    names = measure(QRELS, RUN)
    better = compare(dict.fromkeys(names, mine + 0.1), dict.fromkeys(names, mine))
    assert better["map"] == pytest.approx({"difference": 0.1, "low": 0.1, "high": 0.1})
    other = rng.uniform(size=200)
    found = compare(dict.fromkeys(names, mine), dict.fromkeys(names, other))["recall_at"]["5"]
    error = 1.96 * (mine - other).std() / np.sqrt(200)
    assert found["low"] == pytest.approx(found["difference"] - error, abs=0.004)
    assert found["high"] == pytest.approx(found["difference"] + error, abs=0.004)


def test_documents_have_the_score_of_their_best_passage(answerer, judged):
    store = answerer.store
    assert len(store) > len(store.document_ids)
    for retriever in ("dense", "bm25"):
        by = answerer.by(retriever)
        run = retrieve_documents(by, judged.queries)
        for query, text in judged.queries.items():
            ids, scores = by.find([text], partial(by.query_vectors, [text]), len(store))
            best = {}
            for passage, score in zip(ids[0].tolist(), scores[0].tolist(), strict=True):
                name = store.document_id(passage)
                best[name] = max(score, best.get(name, -np.inf))
            found = {d: s for d, s in best.items() if s > 0 or retriever == "dense"}
            assert run[query] == pytest.approx(found, rel=1e-3)


def test_rows_of_queries_hold_the_longest_query(answerer):
    words, most = answerer.store.vocabulary, answerer.config.lengths.query
    for text in ("a", "where is ora?", "where is ora in the land of ube?", "a " * most):
        needed = len(words.pieces([text])[0][0]) + 2
        assert _query_length(answerer, ["a", text]) == min(most, -(-needed // 8) * 8)


def test_passages_of_a_document_are_merged_by_maximum(answerer):
    ids = np.arange(len(answerer.store))[::-1]
    scores = np.linspace(2.0, -1.0, len(ids))
    merged = _documents(answerer, ids, scores, "")
    names = [answerer.store.document_id(i) for i in ids.tolist()]
    first = {name: scores[names.index(name)] for name in names}
    assert merged == first
    assert len(merged) < len(ids)


def test_only_the_first_documents_of_a_query_are_kept(answerer, monkeypatch):
    ids, scores = np.arange(len(answerer.store)), np.linspace(2.0, 1.0, len(answerer.store))
    every = list(_documents(answerer, ids, scores, "").items())
    monkeypatch.setattr("realm_jax.inference.judged.DEPTH", 2)
    assert list(_documents(answerer, ids, scores, "").items()) == every[:2] != every


def test_a_document_with_the_id_of_the_query_is_left_out(answerer):
    run = retrieve_documents(answerer, {"d3": "the river", "q3": "the river"})
    assert run["d3"].keys() == run["q3"].keys() - {"d3"}


def test_relevant_documents_with_the_id_of_their_query_are_counted(
    answerer, judged, tmp_path, caplog
):
    evaluate_judged(answerer, judged, epath.Path(tmp_path / "x.trec"))
    assert "have the id of their query" not in caplog.text
    equal = replace(judged, queries={"d3": "the river"}, qrels={"d3": {"d3": 1, "d4": 1}})
    evaluate_judged(answerer, equal, epath.Path(tmp_path / "y.trec"))
    assert "1 relevant documents have the id of their query, for example d3" in caplog.text


def test_words_find_the_judged_documents(answerer, judged, tmp_path):
    report = evaluate_judged(answerer.by("bm25"), judged, epath.Path(tmp_path / "x.trec"))
    assert report["ndcg_at_10"] > 0.9
    assert report["recall_at"].keys() == {"5", "100"}
    assert report["queries"] == len(judged.queries)
    run = read_run(report["run_file"])
    again = {name: value.mean() for name, value in measure(judged.qrels, run).items()}
    assert again["ndcg_at_10"] == pytest.approx(report["ndcg_at_10"])
    against = evaluate_judged(answerer, judged, epath.Path(tmp_path / "y.trec"), run)["against"]
    difference = against["ndcg_at_10"]
    assert difference["low"] <= difference["difference"] <= difference["high"] < 0


def test_a_run_file_that_cannot_be_written_is_refused_before_the_search(
    answerer, judged, tmp_path, monkeypatch
):
    monkeypatch.delattr("realm_jax.inference.judged.retrieve_documents")
    with pytest.raises(InputError, match="--run-file=FILE"):
        evaluate_judged(answerer, judged, epath.Path(tmp_path))


def test_a_run_of_ids_with_blanks_is_compared(answerer, judged, tmp_path):
    own = replace(
        judged,
        queries={f"my {query}": text for query, text in judged.queries.items()},
        qrels={f"my {query}": grades for query, grades in judged.qrels.items()},
    )
    report = evaluate_judged(answerer.by("bm25"), own, epath.Path(tmp_path / "x.trec"))
    run = read_run(report["run_file"])
    against = evaluate_judged(answerer.by("bm25"), own, epath.Path(tmp_path / "y.trec"), run)
    assert against["against"]["ndcg_at_10"]["difference"] == pytest.approx(0)
    assert report["ndcg_at_10"] > 0.9


def test_a_run_of_other_queries_is_not_compared(answerer, judged, tmp_path, caplog):
    few = judged.first(3)
    with pytest.raises(InputError, match="none of the judged queries"):
        evaluate_judged(answerer, few, epath.Path(tmp_path / "x.trec"), {"other": {"d1": 1.0}})
    run = {query: {"d1": 1.0} for query in few.queries}
    with pytest.raises(InputError, match="at least 2"):
        evaluate_judged(answerer, few.first(1), epath.Path(tmp_path / "x.trec"), run)
    assert not (tmp_path / "x.trec").exists()
    del run[next(iter(run))]
    evaluate_judged(answerer.by("bm25"), few, epath.Path(tmp_path / "x.trec"), run)
    assert "1 of 3 queries have no document in the run file of --against" in caplog.text
