"""Candidates of a query: null passage first, source passage excluded, missing hits invalid."""

from types import SimpleNamespace

import numpy as np
from support.tiny_corpus import tiny_config

from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.rows import NULL_PASSAGE, Rows
from realm_jax.retrieval import retriever as retriever_module
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.retrieval.retriever import search, select_candidates
from realm_jax.storage.layout import VOCABULARY


def chosen(hits, own, count=4, null_passage=True):
    excluded = None if own is None else np.array(hits) == np.array(own)[:, None]
    numbers, valid = select_candidates(np.array(hits), excluded, count, null_passage)
    return numbers.tolist(), valid.astype(int).tolist()


def test_the_null_passage_comes_first_then_the_best_hits_in_order():
    assert chosen([[7, 3, 9, 1]], [-1]) == ([[NULL_PASSAGE, 7, 3, 9]], [[1, 1, 1, 1]])


def test_the_source_passage_is_excluded_and_the_next_hit_moves_up():
    hits = [[7, 3, 9, 1]] * 3
    numbers, valid = chosen(hits, [7, 9, 1])
    assert numbers == [[NULL_PASSAGE, 3, 9, 1], [NULL_PASSAGE, 7, 3, 1], [NULL_PASSAGE, 7, 3, 9]]
    assert valid == [[1, 1, 1, 1]] * 3


def test_the_source_passage_is_kept_if_exclude_source_is_off():
    assert chosen([[7, 3, 9, 1]], None) == ([[NULL_PASSAGE, 7, 3, 9]], [[1, 1, 1, 1]])


def test_copies_of_the_source_passage_are_excluded_too(tiny, tmp_path):
    texts = [(tiny.store.title(i), [tiny.store.body(i)]) for i in (0, 1, 0, 2)]
    write_passages(tmp_path / "twice", texts, tiny.store.path / VOCABULARY)
    store, hits = PassageStore.open(tmp_path / "twice"), np.array([[0, 1, 2, 3]])
    for source, expected in ((0, [1, 3]), (2, [1, 3]), (1, [0, 2, 3]), (-1, [0, 1, 2, 3])):
        retriever = HostRetriever(tiny_config(retrieval__candidates=5), store.vocabulary.size)
        ids, valid = retriever.select(hits, np.array([source]), store)
        assert ids[valid].tolist() == [NULL_PASSAGE, *expected]
    kept = tiny_config(retrieval__candidates=5, retrieval__exclude_source=False)
    ids, _ = HostRetriever(kept, store.vocabulary.size).select(hits, np.array([0]), store)
    assert ids.tolist() == [[NULL_PASSAGE, 0, 1, 2, 3]]


def test_slots_without_a_hit_hold_the_null_passage_and_are_invalid():
    null = NULL_PASSAGE
    assert chosen([[7, 3]], [3]) == ([[null, 7, null, null]], [[1, 1, 0, 0]])
    assert chosen([[7]], [7]) == ([[null, null, null, null]], [[1, 0, 0, 0]])
    assert chosen([[7, 3, 9]], [3]) == ([[null, 7, 9, null]], [[1, 1, 1, 0]])


def test_without_null_passage_candidate_0_is_invalid():
    numbers, valid = chosen([[7, 3, 9, 1]], [-1], null_passage=False)
    assert numbers == [[NULL_PASSAGE, 7, 3, 9]]
    assert valid == [[0, 1, 1, 1]]


def test_two_candidates_are_the_null_passage_and_one_hit():
    assert chosen([[7, 3]], [7], count=2) == ([[NULL_PASSAGE, 3]], [[1, 1]])


class Interrupted(HostRetriever):
    """Between lookup and search, another thread searches another index."""

    @property
    def _placed(self):
        placed, self.placed = self.placed, (2, {"w": np.full((1, 1), 2, np.float32)})
        return placed

    @_placed.setter
    def _placed(self, placed):
        self.placed = placed


def test_concurrent_searches_of_two_indexes_use_the_params_of_each_index(monkeypatch):
    retriever = Interrupted(tiny_config(), vocabulary=8)
    embedded = lambda params, _: np.asarray(params["w"])  # noqa: E731
    monkeypatch.setattr(retriever._encoder, "embed_queries", embedded)
    vectors = np.ones((1, 1), np.float32)
    parts = {
        "searcher": ExactSearcher(vectors),
        "rows": np.arange(1),
        "query_params": {"w": vectors},
    }
    index, ids = SimpleNamespace(step=1, **parts), np.zeros((1, 4), np.int32)
    for placed in ((-1, None), (1, {"w": vectors}), (2, {"w": 2 * vectors})):
        retriever.placed = placed
        assert retriever.embed_queries(index, Rows(ids, ids == 0, ids)) == 1


def test_many_queries_are_searched_in_chunks(monkeypatch):
    """An exact searcher keeps all scores of a call in memory."""
    monkeypatch.setattr(retriever_module, "MAX_QUERIES", 4)
    vectors = np.random.default_rng(0).normal(size=(11, 5)).astype(np.float32)
    searcher = ExactSearcher(vectors)
    index = SimpleNamespace(step=0, searcher=searcher, rows=np.arange(11) + 100, query_params={})
    whole = index.searcher.search
    sizes = []

    def counted(queries, k):
        sizes.append(len(queries))
        return whole(queries, k)

    index.searcher.search = counted
    queries = np.random.default_rng(1).normal(size=(10, 5)).astype(np.float32)
    found = search(index, queries, 20)
    assert sizes == [4, 4, 2]
    np.testing.assert_array_equal(found, whole(queries, 11)[0] + 100)
