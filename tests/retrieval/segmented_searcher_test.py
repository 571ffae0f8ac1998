"""A segmented search equals the search of one index over the same rows, without hidden rows."""

import re
import shutil

import numpy as np
import pytest

from realm_jax import config as configs
from realm_jax.errors import ConfigError, DamageError, MismatchError
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.search_process import MIN_ROWS, SearchProcess, load_in_subprocess
from realm_jax.retrieval.searcher import Part, build_searcher, load_searcher
from realm_jax.retrieval.searcher_files import DESCRIPTION, saved_kinds
from realm_jax.retrieval.segmented_searcher import HIDDEN, SegmentedSearcher

E = 16
OPTIONS = configs.default().search
OPTIONS.dtype = OPTIONS.rescore = "float32"
KINDS = ("exact", "mesh", "scann", "faiss")


def some(size, seed=0):
    """Vectors of few whole numbers, so that scores are exact and many are equal."""
    random = np.random.default_rng(seed)
    return random.integers(-2, 3, (size, E)).astype(np.float32)


def segmented(vectors, kinds, hidden=()):
    parts = np.array_split(vectors, len(kinds))
    built = [build_searcher(kind, part, OPTIONS) for kind, part in zip(kinds, parts, strict=True)]
    return SegmentedSearcher(built, np.array(hidden, np.int64))


def brute(vectors, queries, k, hidden=()):
    scores = queries @ vectors.T
    scores[:, list(hidden)] = -np.inf
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return rows, np.take_along_axis(scores, rows, 1)


@pytest.mark.parametrize("kinds", [("exact",), ("exact",) * 7, ("exact", "mesh", "exact")])
@pytest.mark.parametrize("k", [1, 8, 333])
def test_hits_are_those_of_one_index_and_ties_go_to_the_lower_row(kinds, k):
    vectors, queries = some(333), some(20, seed=1)
    searcher = segmented(vectors, kinds)
    rows, scores = searcher.search(queries, k)
    assert (searcher.size, searcher.dims) == (333, E)
    assert rows.dtype == np.int32 and scores.dtype == np.float32
    right = brute(vectors, queries, k)
    if "mesh" in kinds:  # its rows are centred, so that equal scores differ by a rounding error
        np.testing.assert_allclose(scores, right[1], atol=1e-4)
    else:
        np.testing.assert_array_equal(rows, right[0])
        np.testing.assert_array_equal(scores, right[1])


def test_hidden_rows_are_never_returned():
    vectors, queries = some(300), some(20, seed=1)
    best = brute(vectors, queries, 40)[0]
    whole_segment, top = np.arange(100, 200), np.unique(best[:10])
    hidden = np.union1d(whole_segment, top)
    searcher = segmented(vectors, ("exact",) * 3, hidden)
    assert searcher.size == 300 - len(hidden)
    for k in (1, 8, searcher.size):
        rows, scores = searcher.search(queries, k)
        right = brute(vectors, queries, k, hidden)
        np.testing.assert_array_equal(rows, right[0])
        np.testing.assert_array_equal(scores, right[1])
    with pytest.raises(MismatchError, match=f"1 to {searcher.size}"):
        searcher.search(queries, searcher.size + 1)


def test_only_queries_that_lose_hits_ask_a_segment_for_more():
    """So the hits of a query do not depend on the queries that are searched with it."""
    asked = []

    class Noted(ExactSearcher):
        def search(self, queries, k):
            asked.append((len(queries), k))
            return super().search(queries, k)

    vectors, queries = some(300), some(20, seed=1)
    best = brute(vectors, queries, 300)[0]
    first = best[0, :30]
    lost = [int(np.isin(of_query[:8], first).sum()) for of_query in best]
    searcher = SegmentedSearcher([Noted(vectors)], first)
    searcher.search(queries, 8)
    assert asked[0] == (20, 8)
    assert asked[1] == (sum(map(bool, lost)), 32) and 0 < asked[1][0] < 20
    assert asked[-1][1] <= 8 + 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_searcher_gives_the_same_results(kind, tmp_path):
    vectors, queries = some(500), some(20, seed=1)
    searcher = segmented(vectors, (kind, "exact"), [3, 4, 400])
    searcher.save(tmp_path)
    loaded = load_searcher(tmp_path)
    assert saved_kinds(tmp_path) == {kind, "exact"}
    assert (loaded.kind, loaded.size, loaded.bytes) == ("segmented", 497, searcher.bytes)
    for mine, theirs in zip(searcher.search(queries, 9), loaded.search(queries, 9), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_missing_or_foreign_file_is_an_error_with_its_name(tmp_path):
    segmented(some(30), ("exact", "exact"), [3]).save(tmp_path)
    names = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]
    assert len(names) == 6 and {HIDDEN, DESCRIPTION} < set(names)
    for name in names:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        with pytest.raises(DamageError, match=re.escape(str(tmp_path / name))):
            load_searcher(tmp_path)
        (tmp_path / name).write_bytes(content)
    described = (tmp_path / DESCRIPTION).read_text()
    for now, other, expected in [
        ('"segments": [', '"segments": 2, "not": [', "at least one"),
        ('"size": 29', '"size": 30', "30 rows"),
        ('"size": 15', '"size": 16', "29 rows"),
    ]:
        assert now in described
        (tmp_path / DESCRIPTION).write_text(described.replace(now, other, 1))
        with pytest.raises(DamageError, match=expected):
            load_searcher(tmp_path)
    moved = described.replace('"size": 15', '"size": 14', 1)
    (tmp_path / DESCRIPTION).write_text("16".join(moved.rsplit("15", 1)))
    with pytest.raises(DamageError, match=r"segment_00000[\s\S]*14 rows[\s\S]*15 rows"):
        load_searcher(tmp_path)


def test_parts_find_the_rows_of_the_whole_index(tmp_path):
    vectors, queries = some(50), some(20, seed=1)
    whole = segmented(vectors, ("exact",) * 5, [7, 49])
    whole.save(tmp_path)
    shutil.rmtree(tmp_path / "segment_00001")  # the other part does not need it
    parts = [load_searcher(tmp_path, None, Part(0, 4)), load_searcher(tmp_path, None, Part(2, 4))]
    assert [(part.size, part.starts.tolist()) for part in parts] == [(18, [0, 40]), (10, [20])]
    for part, own in zip(parts, ([*range(10), *range(40, 50)], range(20, 30)), strict=True):
        rows, scores = part.search(queries, part.size)
        right = brute(vectors, queries, part.size, sorted({*range(50)} - {*own} | {7, 49}))
        np.testing.assert_array_equal(rows, right[0])
        np.testing.assert_array_equal(scores, right[1])


def test_all_segments_are_widened():
    options = OPTIONS.copy_and_resolve_references()
    options.update(leaves=50, leaves_searched=1, reorder=10)
    vectors = np.random.default_rng(0).normal(size=(40_000, E)).astype(np.float32)
    parts = [build_searcher("scann", vectors[:20_000], options), ExactSearcher(vectors[20_000:])]
    searcher, queries = SegmentedSearcher(parts), vectors[:64]
    right = brute(vectors, queries, 10)[0]
    before = (searcher.search(queries, 10)[0] == right).mean()
    while searcher.widen():
        pass
    assert before < 0.95 and (searcher.search(queries, 10)[0] == right).mean() > 0.999


def test_segments_of_scann_are_loaded_in_another_process(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(MIN_ROWS + 1, E)).astype(np.float32)
    segmented(vectors, ("exact", "exact")).save(tmp_path)
    assert isinstance(load_in_subprocess(tmp_path), SegmentedSearcher)
    (tmp_path / "scann").mkdir()
    searcher = segmented(vectors, ("scann", "exact"), [5])
    searcher.save(tmp_path / "scann")
    loaded = load_in_subprocess(tmp_path / "scann")
    assert isinstance(loaded, SearchProcess)
    assert loaded.size == searcher.size
    found = loaded.search(vectors[:50], 8)
    for mine, theirs in zip(searcher.search(vectors[:50], 8), found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_segments_that_do_not_fit_each_other_are_refused():
    with pytest.raises(MismatchError, match=r"\[8, 16\]"):
        SegmentedSearcher([ExactSearcher(some(5)), ExactSearcher(some(5)[:, :8])])
    for row in (-1, 5):
        with pytest.raises(MismatchError, match="0 to 4"):
            SegmentedSearcher([ExactSearcher(some(5))], np.array([row]))
    with pytest.raises(ConfigError, match="scann or exact or mesh or faiss"):
        build_searcher("segmented", some(5), OPTIONS)
