"""BM25: a retriever that compares words and needs no training, on the library bm25s.

Words are runs of at least two letters, digits or underscores of title and body, in lower case,
without Lucene's 33 English stop words, stemmed by Snowball's English stemmer. The score has the
form of Lucene, with k1 and b of Anserini:

  sum over the words w of the query: idf(w) tf / (tf + k1 (1 - b + b length / mean length))
  idf(w) = log(1 + (N - df + 1/2) / (df + 1/2))

The index is the folder `bm25` of a corpus, memory-mapped. The first use of a corpus builds it, and
so does the first use after the corpus was replaced, or after many of its passages changed. If few
changed, they are indexed in memory; see `GrownBm25`.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32, Int64

from realm_jax.corpus.store import PassageStore
from realm_jax.errors import DamageError, InputError
from realm_jax.retrieval.bm25_words import Texts, library, tokenize, words_of
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.flock import exclusive
from realm_jax.storage.layout import BM25, MANIFEST

KIND = FOLDER = BM25
IDS = "passage_ids.npy"  # int64, passage id of each row; missing if they are equal
K1, B = 0.9, 0.4
# So many changed passages are indexed in memory: this share of the corpus, but at least _SMALL and
# at most _LARGE. With more, the index is built again.
_MOST_SHARE, _SMALL, _LARGE = 0.05, 100, 20_000
_SETTINGS = {"k1": K1, "b": B, "method": "lucene", "words": "english"}

log = logging.getLogger(__name__)

Ranked = tuple[Int64[np.ndarray, "B K"], Float32[np.ndarray, "B K"]]


class Bm25:
    """The BM25 index of the passages of a corpus.

    Args:
      folder: verified.
      manifest: of that folder.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self._model = library().BM25.load(folder, mmap=True, show_progress=False)
        # As plain arrays: indexing np.memmap is several times slower.
        arrays = {name: self._model.scores[name] for name in ("data", "indices", "indptr")}
        self._model.scores |= {name: np.asarray(array) for name, array in arrays.items()}
        self._mean_words: float = manifest["mean_words"]
        self._size: int = manifest["passages"]
        self.corpus_hash: str = manifest["corpus_hash"]
        self.ids = _read_ids(folder, self._size)

    @classmethod
    def open(cls, store: PassageStore) -> "Bm25":
        """Opens the index of a corpus after it has verified every byte; builds a missing one.

        Building holds 8 bytes per word of the corpus in memory.

        Raises:
          InputError: the corpus has no words, or its folder has no index and cannot be written.
          DamageError: a file is damaged; names it.
        """
        folder = store.path / FOLDER
        with _exclusive(store.path):
            manifest = _read(folder)
            changed = _changed_since(manifest.get("corpus_hash"), store)
            if changed is None or any(
                manifest.get(name) != value for name, value in _SETTINGS.items()
            ):
                manifest, changed = _build(folder, store), np.empty(0, np.int64)
            return cls(folder, manifest)._with(store, changed)

    def over(self, store: PassageStore) -> "Bm25":
        """The index of a later generation of the same corpus; raises as `open`.

        If few passages changed, no byte of this index is read again.
        """
        changed = _changed_since(self.corpus_hash, store)
        return Bm25.open(store) if changed is None else self._with(store, changed)

    def _with(self, store: PassageStore, changed: Int64[np.ndarray, "C"]) -> "Bm25":
        from realm_jax.retrieval.grown_bm25 import GrownBm25  # a subclass

        every_id = len(self.ids) == len(store)
        return self if every_id and not len(changed) else GrownBm25(self, store, changed)

    def __len__(self) -> int:
        """Passages that can be found."""
        return self._size

    def scores(self, query: str) -> Float32[np.ndarray, "N"]:
        """BM25 scores of all passages; 0: no word in common with the query."""
        words = [word for word in words_of([query])[0] if word in self._model.vocab_dict]
        if not words:
            return np.zeros(len(self), np.float32)
        return self._model.get_scores(words)

    def scores_of(self, query: str, texts: Texts) -> Float32[np.ndarray, "T"]:
        """Scores of texts that are not in the index, with its document frequencies."""
        scores = np.zeros(len(texts.lengths), np.float32)
        saturation = K1 * (1 - B + B * texts.lengths / self._mean_words)
        for word in words_of([query])[0]:
            at, counts = texts.occurrences.get(word, ([], []))
            scores[at] += self._idf(word) * np.array(counts) / (counts + saturation[at])
        return scores

    def _idf(self, word: str) -> float:
        number = self._model.vocab_dict.get(word)
        bounds = self._model.scores["indptr"]
        frequency = 0 if number is None else int(bounds[number + 1] - bounds[number])
        return float(np.log1p((len(self) - frequency + 0.5) / (frequency + 0.5)))

    def search(self, queries: Sequence[str], k: int) -> Ranked:
        """Ids and scores of the k best passages of each query, best first.

        Equal scores are in the order of ids; those of score 0 come last. k is cut to N.
        """
        return best(map(self.scores, queries), min(k, len(self)))


def best(scores: Iterable[Float32[np.ndarray, "N"]], k: int) -> Ranked:
    """Ids and scores of the k highest scores of each query; equal ones in the order of ids.

    No score is negative. The scores of one query at a time are in memory.
    """
    ids, kept = [], []
    for of_query in scores:
        members = np.flatnonzero(of_query > 0)  # few passages share a word with a query
        if len(members) < k:
            members = np.arange(len(of_query))
        cut = len(members) - min(k, len(members))
        members = members[of_query[members] >= np.partition(of_query[members], cut)[cut]]
        order = np.argsort(-of_query[members], kind="stable")[:k]
        ids.append(members[order])
        kept.append(of_query[members[order]])
    return np.array(ids, np.int64), np.array(kept, np.float32)


def passage_text(title: str, body: str) -> str:
    """The text of a passage that is searched."""
    return f"{title}\n{body}"


def texts_of(store: PassageStore, ids: Int64[np.ndarray, "R"]) -> Iterator[str]:
    """The texts of passages that are searched."""
    return (passage_text(store.title(i), store.body(i)) for i in ids.tolist())


def _changed_since(corpus_hash: str | None, store: PassageStore) -> Int64[np.ndarray, "C"] | None:
    """Passages that changed since the generation with this hash.

    None: they are many, or that generation is not an earlier one of the corpus.
    """
    if corpus_hash is None or corpus_hash not in store.lineage:
        return None
    changed = store.changed_since(store.generation_of(corpus_hash))
    most = min(max(_MOST_SHARE * store.passages(), _SMALL), _LARGE)
    return changed if len(changed) <= most else None


def _read_ids(folder: Path, size: int) -> Int64[np.ndarray, "R"]:
    """Passage id of each row of the index."""
    path = folder / IDS
    return np.load(path) if path.exists() else np.arange(size)


def _read(folder: Path) -> dict[str, Any]:
    """The manifest of a verified folder; {} if there is no finished one."""
    path = epath.Path(folder)
    manifest = commit.read_manifest(path, mean_words=float, passages=int)
    if manifest is None:
        return {}
    problems = integrity.verify(path)
    if manifest["kind"] != KIND or problems:
        problem = problems[0] if problems else {"file": MANIFEST, "expected": KIND, "found": "?"}
        raise DamageError(
            "the BM25 index of the corpus is damaged",
            where=folder / problem["file"],
            expected=problem["expected"],
            found=problem["found"],
            fix=f"delete {folder}: the next use of this retriever builds it again",
        )
    return manifest


def _build(folder: Path, store: PassageStore) -> dict[str, Any]:
    """Builds and publishes the index; returns its manifest."""
    ids = store.live_ids()
    log.info("building the BM25 index of %d passages in %s", len(ids), folder)
    words = tokenize(texts_of(store, ids), return_ids=True)
    if not words.vocab:
        raise InputError(
            "BM25 finds no words in this corpus",
            where=store.path,
            expected="words of at least two characters that are not stop words",
            found=f"none in {len(ids)} passages",
            fix="use the embedder: --retriever=dense, or --config.stages.qa.retriever=dense",
        )
    model = library().BM25(k1=K1, b=B, method="lucene")
    model.index(words, show_progress=False)
    path = epath.Path(folder)
    try:
        files.delete_tree(path)
        with files.external_write(path):
            model.save(folder, show_progress=False)
            if len(ids) < len(store):
                np.save(folder / IDS, ids)
    except OSError as error:
        if error.errno not in files.NOT_WRITABLE:
            raise
        raise InputError(
            "the BM25 index cannot be written into the folder of the corpus",
            where=folder,
            expected="write permission at the first use of this retriever",
            found=error,
            fix="run the command once as a user who may write there, or on a copy of the corpus",
        ) from error
    counts = {"passages": len(ids), "mean_words": float(np.mean([len(w) for w in words.ids]))}
    fields = {"kind": KIND, "corpus_hash": store.corpus_hash, **_SETTINGS, **counts}
    return commit.write_manifest(path, fields, commit.measure(path))


def _exclusive(corpus: Path) -> AbstractContextManager[None]:
    """Lets one process at a time build or open the index of a corpus.

    The lock is on the corpus manifest, so that no other file appears in the folder.
    """
    waiting = f"waiting for another command that opens the BM25 index of {corpus}"
    return exclusive(corpus / MANIFEST, waiting, "build with one process at a time", "rb")
