"""The BM25 index of a corpus: the library's scores, its folder, and texts outside it."""

import errno
import multiprocessing
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import bm25s
import numpy as np
import pytest
from Stemmer import Stemmer
from support.tiny_corpus import write_tiny_corpus

from realm_jax.corpus.generations import WrittenText, write_passages_generation
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import DamageError, InputError
from realm_jax.retrieval.bm25 import FOLDER, Bm25, best, passage_text
from realm_jax.retrieval.bm25_words import Texts
from realm_jax.storage import files
from realm_jax.storage.flock import exclusive
from realm_jax.storage.layout import MANIFEST

QUERIES = ["What is the capital of Ora?", "rivers in ora since 1711", "ube"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("bm25"), count=48)


@pytest.fixture(scope="module")
def index(corpus):
    return Bm25.open(corpus.store)


def texts_of(store):
    return [passage_text(store.title(i), store.body(i)) for i in range(len(store))]


def test_scores_are_those_of_the_library(corpus, index):
    words = {"stopwords": "en", "stemmer": Stemmer("english"), "show_progress": False}
    library = bm25s.BM25(k1=0.9, b=0.4)
    library.index(bm25s.tokenize(texts_of(corpus.store), **words), show_progress=False)
    queries = bm25s.tokenize(QUERIES, return_ids=False, **words)
    _, scores = library.retrieve(queries, k=48, backend_selection="numpy", show_progress=False)
    ids, ours = index.search(QUERIES, 48)
    np.testing.assert_allclose(ours, scores, rtol=1e-6)
    assert all(len(set(row)) == 48 for row in ids.tolist())


def test_best_are_the_highest_scores_with_equal_ones_in_order():
    scores = [np.array([1, 3, 0, 3, 2, 1], np.float32), np.zeros(6, np.float32)]
    ids, kept = best(scores, 3)
    assert ids.tolist() == [[1, 3, 4], [0, 1, 2]]
    assert kept.tolist() == [[3, 3, 2], [0, 0, 0]]
    assert best(scores, 99)[0].shape == (2, 6)


def test_a_query_without_known_words_scores_zero(index):
    assert not index.scores("the of unheard").any()
    assert not index.scores("").any()


def test_a_text_scores_as_if_it_were_in_the_index(corpus, index):
    texts = texts_of(corpus.store)
    for query in QUERIES:
        np.testing.assert_allclose(
            index.scores_of(query, Texts(texts)), index.scores(query), rtol=1e-5, atol=1e-6
        )
    assert index.scores_of("unheard of", Texts(["an unheard thing"])) > 0
    assert index.scores_of("unheard", Texts([])).shape == (0,)


def test_the_index_is_built_once_and_again_for_another_corpus(tmp_path, corpus):
    store = PassageStore.open(shutil.copytree(corpus.folder, tmp_path / "corpus"))
    shutil.rmtree(store.path / FOLDER, ignore_errors=True)
    Bm25.open(store)
    written = (store.path / FOLDER / MANIFEST).stat()
    Bm25.open(store)
    assert (store.path / FOLDER / MANIFEST).stat().st_mtime_ns == written.st_mtime_ns
    assert store.verify() == []
    passages = [("Ora", ["Something else about the river."])]
    write_passages(tmp_path / "other", passages, store.path / "vocab.txt")
    shutil.copytree(store.path / FOLDER, tmp_path / "other" / FOLDER)
    assert len(Bm25.open(PassageStore.open(tmp_path / "other"))) == 1


def test_damage_is_named_and_its_fix_works(tmp_path, corpus):
    store = PassageStore.open(shutil.copytree(corpus.folder, tmp_path / "corpus"))
    Bm25.open(store)
    damaged = store.path / FOLDER / "data.csc.index.npy"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(DamageError, match=r"data\.csc\.index\.npy") as error:
        Bm25.open(store)
    shutil.rmtree(str(error.value.fix).split()[1].rstrip(":"))
    Bm25.open(store)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_corpus_that_cannot_be_written_is_refused_with_the_reason(
    tmp_path, corpus, monkeypatch, code
):
    def refuse(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(files, "delete_tree", refuse)
    folder = tmp_path / "corpus"
    shutil.copytree(corpus.folder, folder, ignore=shutil.ignore_patterns("bm25"))
    with pytest.raises(InputError, match="cannot be written into the folder of the corpus"):
        Bm25.open(PassageStore.open(folder))


def test_a_corpus_without_words_is_refused(tmp_path, corpus):
    write_passages(tmp_path / "x", [("a", ["the of a", "."])], corpus.store.path / "vocab.txt")
    with pytest.raises(InputError, match="no words"):
        Bm25.open(PassageStore.open(tmp_path / "x"))


def test_a_grown_corpus_is_searched_without_removed_and_replaced_passages(tmp_path, corpus):
    store = PassageStore.open(shutil.copytree(corpus.folder, tmp_path / "corpus"))
    index = Bm25.open(store)
    [[first, second, *_]] = index.search(["capital of Ora"], 5)[0].tolist()
    new = WrittenText(None, "Xyzzy", "The capital of Xyzzy is new.")
    replaced = WrittenText(second, "Other", "Nothing of that here.")
    write_passages_generation(store.path, [new, replaced], [first])
    grown = PassageStore.open(store.path)
    for found in (Bm25.open(grown), index.over(grown), index.over(grown).over(grown)):
        assert len(found) == len(store)
        ids, scores = found.search(["capital of Ora", "xyzzy"], len(store) + 1)
        assert ids[1, 0] == len(store) and scores[1, 0] > 0
        for row, kept in zip(ids.tolist(), scores, strict=True):
            assert sorted(row) == [i for i in range(len(grown)) if i != first]
            assert np.isfinite(kept).all()
        assert scores[0][ids[0].tolist().index(second)] == 0
        ours, theirs = found.scores("rivers"), index.scores("rivers")
        unchanged = np.setdiff1d(np.arange(len(store)), [first, second])
        assert np.array_equal(ours[unchanged], theirs[unchanged])
    fresh = PassageStore.open(write_fresh(tmp_path / "fresh", grown))
    shutil.rmtree(store.path / FOLDER)
    rebuilt, expected = Bm25.open(grown), Bm25.open(fresh)
    live = grown.live_ids()
    for query in QUERIES:
        assert np.array_equal(rebuilt.scores(query)[live], expected.scores(query))


def write_fresh(path, store):
    """A new corpus of the passages that exist."""
    texts = [(store.title(i), [store.body(i)]) for i in store.live_ids().tolist()]
    write_passages(path, texts, store.path / "vocab.txt")
    return path


def _length(path):
    return len(Bm25.open(PassageStore.open(path)))


@pytest.mark.slow
def test_processes_that_build_at_the_same_time_open_one_index(tmp_path, corpus):
    folder = shutil.copytree(corpus.folder, tmp_path / "corpus")
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_length, [folder] * 3) == [48] * 3
    assert PassageStore.open(folder).verify() == []


def test_a_process_that_waits_for_another_says_so(tmp_path, corpus, caplog):
    shutil.copytree(corpus.folder, tmp_path / "corpus")
    store = PassageStore.open(tmp_path / "corpus")
    caplog.set_level("INFO")
    with ThreadPoolExecutor(1) as pool:
        with exclusive(store.path / MANIFEST, "", "", "rb"):
            opened = pool.submit(Bm25.open, store)
            while not (opened.done() or caplog.messages):
                time.sleep(0.01)
            assert not opened.done()
        assert len(opened.result()) == len(store)
    assert f"waiting for another command that opens the BM25 index of {store.path}" in caplog.text


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_the_best_scores_are_those_of_a_stable_sort_and_zeros_fill_up(k):
    scores = np.array([[0, 2, 0, 1, 2, 0, 1, 0], [0] * 8, [3, 0, 0, 0, 0, 0, 0, 3]], np.float32)
    ids, found = best(iter(scores), k)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(scores, expected, 1))
