"""A published index over passages with a vector that follows from their text, without a network."""

import hashlib
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from realm_jax.artifacts.current_index import CurrentIndex, open_current
from realm_jax.artifacts.index_writer import Embedded, extend
from realm_jax.artifacts.published_index import publish_index
from realm_jax.corpus.generations import GenerationSummary, WrittenText, write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.storage.layout import RunDir

STEP, DIMS = 4, 8


def embed(store: PassageStore, ids: Int64[np.ndarray, "R"]) -> Float32[np.ndarray, "R E"]:
    """A unit vector for each passage; another text has another one."""
    texts = [f"{store.title(i)}|{store.body(i)}".encode() for i in ids.tolist()]
    seeds = [int.from_bytes(hashlib.sha256(text).digest()[:8], "little") for text in texts]
    vectors = [np.random.default_rng(seed).normal(size=DIMS) for seed in seeds]
    vectors = [vector / np.linalg.norm(vector) for vector in vectors]
    return np.array(vectors, np.float16).astype(np.float32).reshape(-1, DIMS)


def publish_base(run: RunDir, store: PassageStore) -> None:
    """Publishes an exact index of all passages of a corpus."""
    rows = store.live_ids()
    vectors = embed(store, rows)
    fields = {"snapshot_step": STEP, "corpus_hash": store.corpus_hash, "passages": len(rows)}
    params = {"kernel": np.ones((2, 2), np.float32)}
    publish_index(run, STEP, ExactSearcher(vectors), rows, vectors, params, fields, "{}")


def open_newest(run: RunDir, corpus: Path, before: CurrentIndex | None = None) -> CurrentIndex:
    """The index and the corpus that it covers."""
    return open_current(run, STEP, PassageStore.open(corpus), before=before)


def write(
    corpus: Path, *texts: tuple[int | None, str], removed: tuple[int, ...] = ()
) -> GenerationSummary:
    """A generation of a corpus with these texts by passage id; None: a new passage."""
    return write_passages_generation(corpus, [WrittenText(i, "", t) for i, t in texts], removed)


def bring_up_to_date(run: RunDir, current: CurrentIndex) -> CurrentIndex:
    """Embeds what is pending, as a server does, and extends the index by it."""
    store = current.store.newest()
    ids = open_current(run, STEP, store, before=current).missing
    return extend(run, current, Embedded(store.generation, ids, embed(store, ids)), embed)


def assert_consistent(current: CurrentIndex) -> None:
    """The index finds what has not changed since its update, with the vectors of its texts."""
    ids = np.setdiff1d(current.store.live_ids(), current.pending)
    found = np.sort(np.delete(current.index.rows, current.index.hidden))
    np.testing.assert_array_equal(found, ids)
    vectors = embed(current.store, ids)
    np.testing.assert_array_equal(current.index.vectors_of(ids), vectors.astype(np.float16))


def assert_equals_fresh(current: CurrentIndex, corpus: Path) -> None:
    """The index finds what an exact index of the newest generation of the corpus finds."""
    store = PassageStore.open(corpus)
    assert current.corpus_hash == current.store.corpus_hash == store.corpus_hash
    ids = store.live_ids()
    vectors = embed(store, ids)
    assert current.index.searcher.size == len(ids)
    queries = np.random.default_rng(0).normal(size=(20, DIMS)).astype(np.float32)
    for k in (1, len(ids)):
        expected, scores = ExactSearcher(vectors).search(queries, k)
        rows, found_scores = current.index.searcher.search(queries, k)
        np.testing.assert_array_equal(current.index.rows[rows], ids[expected])
        np.testing.assert_allclose(found_scores, scores, atol=1e-6)
    np.testing.assert_array_equal(current.index.vectors_of(ids), vectors.astype(np.float16))
