"""A refresh reuses the partitions of the previous index as long as recall does not fall."""

import shutil

import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import open_index, publish_index
from realm_jax.index_builder.build import Trained, build_index, fit
from realm_jax.index_builder.recall import Probes, passage_probes
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.searcher import build_searcher
from realm_jax.storage.layout import RunDir, step_name

N, E, CORPUS = 25_000, 32, "c0ffee"
QUERY = {"w": np.ones(1, np.float32)}


def vectors(seed, moved=0.0):
    """Returns clustered vectors; `moved` is the standard deviation of noise added to each row."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(100, E))
    rows = centres[random.integers(0, 100, N)] + 0.3 * random.normal(size=(N, E))
    return (rows + moved * np.random.default_rng(99).normal(size=(N, E))).astype(np.float32)


def config_of(**changes):
    settings = {"search__kind": "scann", "search__leaves": 100, "model__embedding": E}
    settings |= {"builder__reencode": True, "builder__recall_floor": 0.5}
    return config_lib.ConfigDict(tiny_config(**{**settings, **changes}).to_dict())


def queries_of(rows):
    """Queries near rows of the index, but not equal to them."""
    noise = np.random.default_rng(7).normal(size=(200, E))
    return (rows[:: N // 200][:200] + 0.3 * noise).astype(np.float32)


def publish(run, step, config, rows):
    made = build_index(run, step, config, CORPUS, rows, queries_of(rows))
    fields = {"corpus_hash": CORPUS, **made.trained}
    publish_index(run, step, made.searcher, np.arange(N), rows, QUERY, fields, "{}")
    return made


def recall(searcher, rows):
    queries = rows[:: N // 64][:64]
    right = ExactSearcher(rows).search(queries, 10)[0]
    found = searcher.search(queries, 10)[0]
    return np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(found, right, strict=True)])


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run with the index of step 0, and the index."""
    run = RunDir(tmp_path_factory.mktemp("first"))
    return run, publish(run, 0, config_of(), vectors(1))


@pytest.fixture
def begun(first, tmp_path):
    """A copy of the run `first`."""
    shutil.copytree(first[0].root, tmp_path / "begun")
    return RunDir(tmp_path / "begun")


@pytest.mark.parametrize("kind", ["scann", "faiss"])
def test_partitions_are_kept_while_vectors_change_little(run, kind):
    config = config_of(search__kind=kind)
    first = publish(run, 0, config, vectors(1))
    assert first.trained == {"trained_step": 0, "trained_recall": first.recall}
    for step, moved in ((10, 0.05), (20, 0.1)):
        rows = vectors(1, moved)
        made = publish(run, step, config, rows)
        assert made.trained == first.trained
        assert made.recall >= first.recall - config.builder.reencode_loss
        kept = open_index(run.published_index / step_name(step)).searcher
        assert recall(kept, rows) == recall(made.searcher, rows) > 0.9


def test_partitions_are_retrained_if_recall_falls(begun, caplog):
    caplog.set_level("INFO")
    config = config_of(builder__reencode_loss=0.0)
    made = publish(begun, 10, config, vectors(2))
    rows = vectors(2)
    config = config_of(builder__reencode=False)
    rebuilt = build_index(begun, 10, config, CORPUS, rows, queries_of(rows))
    assert made.trained == rebuilt.trained == {"trained_step": 10, "trained_recall": rebuilt.recall}
    assert "partitions of step 0" in caplog.text and "training them again" in caplog.text


@pytest.mark.parametrize(
    "other",
    [
        {"builder__reencode": False},
        {"search__leaves": 50},
        {"search__rescore": "int8"},
        {"search__dims_per_code": 2},
        {"search__kind": "faiss"},
    ],
)
def test_partitions_are_retrained_if_the_config_says_so(begun, other):
    assert publish(begun, 10, config_of(**other), vectors(1)).trained["trained_step"] == 10


def test_partitions_of_another_number_of_vectors_are_not_reused(begun):
    fewer = vectors(1)[:-1000]
    made = build_index(begun, 10, config_of(), CORPUS, fewer, queries_of(vectors(1)))
    assert made.trained["trained_step"] == 10 and made.searcher.size == len(fewer)


def test_partitions_of_an_index_that_does_not_say_how_they_were_trained_are_not_reused(run):
    """Earlier versions did not write it."""
    rows, fields = vectors(1), {"corpus_hash": CORPUS}
    searcher = build_searcher("scann", rows, config_of().search)
    publish_index(run, 0, searcher, np.arange(N), rows, QUERY, fields, "{}")
    made = build_index(run, 10, config_of(), CORPUS, rows, queries_of(rows))
    assert made.trained["trained_step"] == 10


def fitted(searcher, trained_recall, config, rows):
    """A fit at step 10 whose last index is `searcher`, trained at step 0."""
    last = Trained(searcher, {"trained_step": 0, "trained_recall": trained_recall})
    return fit(10, config, rows, Probes(rows, queries_of(rows)), lambda: last)


def test_partitions_that_reach_the_floor_are_kept_although_recall_has_risen(begun):
    last = open_index(begun.published_index / step_name(0)).searcher
    made = fitted(last, 0.5, config_of(builder__recall_floor=0.5), vectors(1))
    assert made.trained["trained_step"] == 0 and made.recall > 0.9


def test_partitions_that_cannot_reach_the_floor_are_retrained():
    rows, config = vectors(1), config_of(builder__recall_floor=1.0, search__rescore="int8")
    last = build_searcher("scann", rows, config.search)
    recall_before = Probes(rows, queries_of(rows)).recall(last)
    made = fitted(last, recall_before, config, rows)
    assert made.trained["trained_step"] == 10 and made.recall < 1


def test_partitions_of_a_damaged_index_are_not_reused(begun, caplog):
    codes = begun.published_index / step_name(0) / "searcher" / "ah_codebook.pb"
    codes.write_bytes(codes.read_bytes()[:-1] + b"?")
    assert publish(begun, 10, config_of(), vectors(1)).trained["trained_step"] == 10
    assert "index of step 0 cannot be re-encoded" in caplog.text


@pytest.mark.parametrize("kind", ["scann", "faiss"])
def test_reencoding_uses_the_search_settings_of_the_config(run, kind):
    """Settings that need no training change without it; they are kept in the index."""
    publish(run, 0, config_of(search__kind=kind, builder__reencode_loss=1.0), vectors(1))
    changed = {"search__leaves_searched": 37, "search__reorder": 55, "builder__reencode_loss": 1.0}
    made = publish(run, 10, config_of(search__kind=kind, **changed), vectors(1))
    assert made.trained["trained_step"] == 0
    plan = open_index(run.published_index / step_name(10)).searcher.plan
    assert (plan["leaves_searched"], plan["reorder"]) == (37, 55)


@pytest.mark.parametrize("kind", ["scann", "faiss"])
def test_a_widened_search_is_narrow_again_once_recall_allows(run, kind):
    narrow = {"search__kind": kind, "search__leaves_searched": 1, "builder__reencode_loss": 1.0}
    widened = publish(run, 0, config_of(**narrow, builder__recall_floor=0.97), vectors(1))
    assert widened.searcher.plan["leaves_searched"] > 1 and widened.recall >= 0.97
    assert widened.trained["trained_recall"] < widened.recall
    made = publish(run, 10, config_of(**narrow, builder__recall_floor=0.1), vectors(1))
    assert made.trained == widened.trained
    assert made.searcher.plan["leaves_searched"] == 1
    again = publish(run, 20, config_of(**narrow, builder__recall_floor=0.97), vectors(1))
    assert again.trained == widened.trained
    assert again.searcher.plan["leaves_searched"] > 1 and again.recall >= 0.97


def test_partitions_of_an_untrained_embedder_are_replaced_once_better_ones_are_possible(run):
    """They have not lost recall, but the search would be widened at each refresh."""
    narrow = {"search__leaves_searched": 1, "builder__recall_floor": 0.97}
    made = build_index(run, 0, config_of(**narrow), CORPUS, vectors(1), queries_of(vectors(1)))
    trained = made.trained["trained_recall"]
    assert trained < 0.95
    for step, recorded, kept in ((0, trained - 0.3, False), (10, trained, True)):
        fields = {"corpus_hash": CORPUS, "trained_step": step, "trained_recall": recorded}
        rows = vectors(1)
        publish_index(run, step, made.searcher, np.arange(N), rows, QUERY, fields, "{}")
        again = build_index(run, step + 5, config_of(**narrow), CORPUS, rows, queries_of(rows))
        assert again.trained["trained_step"] == (step if kept else step + 5)


@pytest.mark.parametrize("kind", ["scann", "faiss"])
def test_partitions_of_unquantised_vectors_are_widened_to_the_floor(run, kind):
    """search.reorder=0: rows of the searched partitions are scored exactly."""
    settings = {"search__kind": kind, "search__leaves_searched": 1, "search__reorder": 0}
    config = config_of(**settings, builder__reencode=False, builder__recall_floor=0.99)
    rows = vectors(1)
    made = build_index(run, 0, config, CORPUS, rows, queries_of(rows))
    assert made.recall >= 0.99
    searched = made.searcher.plan["leaves_searched"]
    assert searched > 1 if kind == "scann" else searched == 0  # FAISS then searches all rows


def test_the_floor_applies_to_queries_of_the_asked_kind_not_to_passages(run):
    rows = vectors(1)
    queries = np.random.default_rng(3).normal(size=(200, E)).astype(np.float32)
    settings = {"search__leaves_searched": 3, "builder__reencode": False}
    config = config_of(**settings, builder__recall_floor=0.95)
    narrow = build_searcher("scann", rows, config.search, config.seed)
    assert passage_probes(rows, 128).recall(narrow) > 0.95
    assert Probes(rows, queries).recall(narrow) < 0.9
    made = build_index(run, 0, config, CORPUS, rows, queries)
    assert made.recall >= 0.95 and made.searcher.plan["leaves_searched"] > 3
    assert made.recall == Probes(rows, queries).recall(made.searcher)
    assert made.recall_passages == passage_probes(rows, config.builder.probes).recall(made.searcher)
