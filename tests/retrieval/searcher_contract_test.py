"""Properties of all searchers, for sizes below and above ScaNN's thresholds."""

import re
import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax import config as configs
from realm_jax.errors import ConfigError, DamageError, InputError, MismatchError
from realm_jax.retrieval import exact_searcher, mesh_searcher
from realm_jax.retrieval.mesh_searcher import MeshSearcher, search_on_mesh
from realm_jax.retrieval.searcher import build_searcher, check_vectors, load_searcher
from realm_jax.retrieval.searcher_files import DESCRIPTION

E = 32
KINDS = ("exact", "mesh", "scann", "faiss")
OPTIONS = configs.default().search
OPTIONS.dtype = OPTIONS.rescore = "float32"  # this kind must be exact


def clustered(size, seed=0, dims=E):
    """Vectors around common centres, and queries near some of them."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(300, dims))
    near = random.integers(0, len(centres), size)
    vectors = centres[near] + 0.3 * random.normal(size=(size, dims))
    queries = vectors[random.integers(0, size, 64)] + 0.1 * random.normal(size=(64, dims))
    return vectors.astype(np.float32), queries.astype(np.float32)


def brute(vectors, queries, k):
    scores = queries @ vectors.T
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return rows, np.take_along_axis(scores, rows, 1)


def recall(found, right):
    return np.mean([len(set(f) & set(r)) / len(r) for f, r in zip(found, right, strict=True)])


@pytest.fixture(scope="module")
def built():
    """Function from (kind, size) to a searcher; each is built once."""
    cache = {}

    def get(kind, size):
        if (kind, size) not in cache:
            vectors, queries = clustered(size)
            cache[kind, size] = build_searcher(kind, vectors, OPTIONS, seed=3), vectors, queries
        return cache[kind, size]

    return get


APPROXIMATE = [(kind, size) for size in (3001, 25_000, 120_000) for kind in ("scann", "faiss")]
SIZES = [("exact", 3001), ("mesh", 3001), *APPROXIMATE]


@pytest.mark.parametrize(("kind", "size"), SIZES)
@pytest.mark.parametrize("k", [1, 8, 150])
def test_scores_are_inner_products_in_descending_order(built, kind, size, k):
    searcher, vectors, queries = built(kind, size)
    rows, scores = searcher.search(queries, k)
    assert rows.shape == scores.shape == (64, k)
    assert rows.dtype == np.int32 and scores.dtype == np.float32
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == k for row in rows)
    true = np.einsum("be,bke->bk", queries, vectors[rows])
    np.testing.assert_allclose(scores, true, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["exact", "mesh"])
def test_an_exact_search_cannot_be_widened(built, kind):
    assert not built(kind, 3001)[0].widen()


@pytest.mark.parametrize("kind", ["scann", "faiss"])
def test_a_widened_search_becomes_exact_and_is_saved_as_such(kind, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(25_000, E)).astype(np.float32)
    options = OPTIONS.copy_and_resolve_references()
    options.update(leaves=100, leaves_searched=1, reorder=10)
    searcher, queries = build_searcher(kind, vectors, options), vectors[:64]
    right = brute(vectors, queries, 10)[0]
    seen = [recall(searcher.search(queries, 10)[0], right)]
    while searcher.widen():
        seen.append(recall(searcher.search(queries, 10)[0], right))
    assert seen == sorted(seen)
    assert seen[0] < 0.5
    assert seen[-1] > 0.999
    searcher.save(tmp_path)
    assert recall(load_searcher(tmp_path).search(queries, 10)[0], right) == seen[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 10, 3001])
def test_small_corpora_are_searched_exactly(built, kind, k):
    searcher, vectors, queries = built(kind, 3001)
    right = brute(vectors, queries, k)[1]
    np.testing.assert_allclose(searcher.search(queries, k)[1], right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "size"), APPROXIMATE)
def test_recall_is_above_its_bound(built, kind, size):
    searcher, vectors, queries = built(kind, size)
    assert recall(searcher.search(queries, 10)[0], brute(vectors, queries, 10)[0]) >= 0.95


@pytest.mark.parametrize("kind", ["scann", "faiss"])
@pytest.mark.parametrize(("rescore", "share"), [("bfloat16", 2), ("int8", 4)])
def test_rescoring_in_lower_precision_needs_less_memory(kind, rescore, share, tmp_path):
    vectors, queries = clustered(25_000)
    options = OPTIONS.copy_and_resolve_references()
    options.rescore = rescore
    searcher = build_searcher(kind, vectors, options, seed=3)
    assert searcher.bytes == 25_000 * (E * 4 // share + E // 2)
    searcher.save(tmp_path)
    kept = sum(file.stat().st_size for file in tmp_path.iterdir())
    # Partition of each row, lists of rows, and (on disk) one byte per ScaNN code.
    assert kept < searcher.bytes + 25_000 * (12 + E // 2)
    right = brute(vectors, queries, 10)[0]
    for one in (searcher, load_searcher(tmp_path)):
        rows, scores = one.search(queries, 10)
        assert recall(rows, right) >= 0.9
        true = np.einsum("be,bke->bk", queries, vectors[rows])
        np.testing.assert_allclose(scores, true, rtol=0.02, atol=0.3)


def test_partitions_with_several_clusters_are_searched():
    vectors, queries = clustered(25_000)  # the data has 300 clusters
    options = OPTIONS.copy_and_resolve_references()
    options.update(leaves=100, leaves_searched=3)
    rows, _ = build_searcher("scann", vectors, options).search(queries, 10)
    assert recall(rows, brute(vectors, queries, 10)[0]) > 0.95


def test_rows_in_two_partitions_are_found_with_fewer_leaves_searched():
    vectors, queries = clustered(25_000)
    right, found = brute(vectors, queries, 10)[0], {}
    for soar in (False, True):
        options = OPTIONS.copy_and_resolve_references()
        options.update(soar=soar, leaves=100, leaves_searched=1)
        searcher = build_searcher("scann", vectors, options, seed=3)
        rows, _ = searcher.search(queries, 10)
        assert all(len(set(row)) == 10 for row in rows)
        found[soar] = recall(rows, right)
    assert found[True] > found[False]


@pytest.mark.parametrize(("kind", "size"), SIZES)
def test_a_saved_and_moved_searcher_gives_the_same_results(built, kind, size, tmp_path):
    searcher, _, queries = built(kind, size)
    (tmp_path / "here").mkdir()
    searcher.save(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    loaded = load_searcher(tmp_path / "there")
    assert (loaded.kind, loaded.size, loaded.dims) == (kind, size, E)
    assert loaded.bytes == searcher.bytes >= size * E * 4
    for mine, theirs in zip(searcher.search(queries, 8), loaded.search(queries, 8), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_an_error_with_its_name(built, kind, tmp_path):
    (tmp_path / "whole").mkdir()
    built(kind, 3001)[0].save(tmp_path / "whole")
    for file in (tmp_path / "whole").iterdir():
        shutil.copytree(tmp_path / "whole", tmp_path / file.name)
        (tmp_path / file.name / file.name).unlink()
        with pytest.raises(DamageError, match=re.escape(str(tmp_path / file.name))):
            load_searcher(tmp_path / file.name)


@pytest.mark.parametrize(
    ("kind", "name"), [("exact", "vectors.npy"), ("mesh", "vectors.npy"), ("mesh", "mean.npy")]
)
def test_a_truncated_array_is_an_error_with_its_name(built, kind, name, tmp_path):
    built(kind, 3001)[0].save(tmp_path)
    with (tmp_path / name).open("r+b") as file:
        file.truncate((tmp_path / name).stat().st_size - 4)
    with pytest.raises(DamageError, match=name):
        load_searcher(tmp_path)


@pytest.mark.parametrize(("kind", "size"), SIZES)
def test_repeated_and_concurrent_searches_give_the_same_results(built, kind, size):
    searcher, _, queries = built(kind, size)
    first = searcher.search(queries, 8)
    answers = [first] * 4

    def search(place):
        answers[place] = searcher.search(queries, 8)

    threads = [threading.Thread(target=search, args=(place,)) for place in range(1, 4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for rows, scores in answers[1:]:
        np.testing.assert_array_equal(rows, first[0])
        np.testing.assert_array_equal(scores, first[1])


@pytest.mark.parametrize(("kind", "size"), [("exact", 3001), *APPROXIMATE[:4]])
def test_the_same_seed_builds_the_same_index(built, kind, size):
    searcher, vectors, queries = built(kind, size)
    again = build_searcher(kind, vectors, OPTIONS, seed=3)
    for mine, theirs in zip(searcher.search(queries, 8), again.search(queries, 8), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_of_another_width_are_refused_with_both_widths(built, kind):
    searcher, _, queries = built(kind, 3001)
    with pytest.raises(MismatchError, match=r"\[B, 32\]\n.*\[64, 16\]"):
        searcher.search(queries[:, :16].copy(), 5)
    with pytest.raises(MismatchError, match=r"1 to 3001.*\n.*3002"):
        searcher.search(queries, 3002)
    with pytest.raises(MismatchError, match="1 to 3001"):
        searcher.search(queries, 0)
    broken = queries.copy()
    broken[5, 2] = np.nan
    with pytest.raises(InputError, match="query 5"):
        searcher.search(broken, 5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_vectors_are_refused(kind, value):
    vectors, _ = clustered(500)
    vectors[321, 7] = value
    with pytest.raises(InputError, match="index row 321"):
        build_searcher(kind, vectors, OPTIONS)


def test_invalid_vectors_and_unknown_kinds_are_refused(tmp_path):
    vectors, _ = clustered(500)
    for wrong in (vectors.astype(np.float64), vectors[0], vectors[:0]):
        with pytest.raises(InputError, match="float32, at least one row"):
            check_vectors(wrong)
    with pytest.raises(ConfigError, match="scann or exact or mesh or faiss"):
        build_searcher("annoy", vectors, OPTIONS)
    with pytest.raises(DamageError, match=DESCRIPTION):
        load_searcher(tmp_path)


@pytest.mark.parametrize("kind", ["exact", "mesh"])
def test_ties_are_resolved_in_favour_of_the_lower_row(kind, monkeypatch):
    monkeypatch.setattr(exact_searcher, "BLOCK", 16)
    monkeypatch.setattr(mesh_searcher, "BLOCK", 5)
    vectors = np.ones((100, 4), np.float32)
    vectors[[70, 90]] = 2
    rows, _ = build_searcher(kind, vectors, OPTIONS).search(np.ones((2, 4), np.float32), 30)
    assert rows.tolist() == [[70, 90, *range(28)]] * 2


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize("size", [7, 8, 333])
def test_mesh_search_is_exact_for_any_number_of_devices(devices, size, monkeypatch):
    monkeypatch.setattr(mesh_searcher, "BLOCK", 16)
    vectors, queries = clustered(size)
    vectors -= 10  # every score is negative: padding, which scores 0, would win
    queries = np.abs(queries)
    mesh = jax.make_mesh((devices,), ("rows",), devices=jax.devices()[:devices])
    searcher = MeshSearcher(vectors, mesh)
    rows, scores = searcher.search(queries, 7)
    np.testing.assert_array_equal(rows, brute(vectors, queries, 7)[0])
    np.testing.assert_allclose(scores, brute(vectors, queries, 7)[1], rtol=1e-5)


@pytest.mark.parametrize("size", [7, 333])
def test_rows_sharded_over_devices_are_saved_as_one_array(size, monkeypatch, tmp_path):
    monkeypatch.setattr(mesh_searcher, "BLOCK", 16)
    vectors, queries = clustered(size)
    vectors += 10
    options = configs.default().search
    options.dtype = "float32"
    built = MeshSearcher.build(vectors, options)
    built.save(tmp_path)
    saved = np.load(tmp_path / "vectors.npy")
    np.testing.assert_allclose(saved, vectors - vectors.mean(0), atol=1e-5)
    np.save(tmp_path / "plain.npy", saved)  # padding rows at the end would make the array longer
    sizes = [(tmp_path / name).stat().st_size for name in ("vectors.npy", "plain.npy")]
    assert sizes[0] == sizes[1]
    two = jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])
    for searcher in (built, MeshSearcher.load(tmp_path, two)):
        rows, scores = searcher.search(queries, 7)
        np.testing.assert_array_equal(rows, brute(vectors, queries, 7)[0])
        np.testing.assert_allclose(scores, brute(vectors, queries, 7)[1], rtol=1e-4, atol=1e-4)


def test_mesh_search_works_inside_jit_and_on_two_mesh_axes():
    vectors, queries = clustered(333)
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    searcher = MeshSearcher(vectors, mesh, "bfloat16")
    assert searcher.vectors.dtype == jnp.bfloat16

    @jax.jit
    def step(vectors, half):
        return search_on_mesh(vectors, half * 2, 5, size=333, mesh=mesh)

    rows, scores = jax.device_get(step(searcher.vectors, queries / 2))
    assert scores.dtype == np.float32
    assert recall(rows, brute(vectors, queries, 5)[0]) > 0.9


@pytest.mark.parametrize("kind", ["scann", "faiss"])
def test_a_partitioned_search_with_too_few_hits_is_repeated_exactly(kind):
    vectors, queries = clustered(25_000)
    options = configs.default().search
    options.leaves, options.leaves_searched = 200, 1
    searcher = build_searcher(kind, vectors, options)
    rows, scores = searcher.search(queries, 5000)
    assert np.isfinite(scores).all() and all(len(set(row)) == 5000 for row in rows)


@pytest.mark.parametrize("kind", ["mesh", "scann", "faiss"])
@pytest.mark.parametrize("size", [25_000, pytest.param(120_000, marks=pytest.mark.slow)])
def test_vectors_with_a_large_common_component_are_distinguished(kind, size, tmp_path):
    """As with a trained embedder, the common component is three times as large as the rest."""
    vectors, queries = clustered(size)
    far = np.random.default_rng(9).normal(size=E)
    far = (far * 3 * np.linalg.norm(vectors, axis=1).mean() / np.linalg.norm(far)).astype("f4")
    np.save(tmp_path / "vectors.npy", vectors + far)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    options = configs.default().search
    options.reorder = 400
    searcher = build_searcher(kind, mapped, options, seed=3)
    right = brute(vectors + far, queries + far, 10)[0]
    found = searcher.search(queries + far, 10)
    assert recall(found[0], right) >= 0.9
    true = np.einsum("be,bke->bk", queries + far, mapped[found[0]])
    np.testing.assert_allclose(found[1], true, atol=0.3)
    (tmp_path / "saved").mkdir()
    searcher.save(tmp_path / "saved")
    again = load_searcher(tmp_path / "saved").search(queries + far, 10)
    for mine, theirs in zip(found, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
