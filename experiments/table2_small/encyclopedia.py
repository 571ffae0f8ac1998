"""Builds the corpora of the edition that starts from an encoder.

| folder | content |
|---|---|
| `wikipedia`, with `tagged_spans` and `shown_spans` | as in `corpora`, of a quarter of the sample |
| `encyclopedia` | Z: the beginnings of all articles of Simple English Wikipedia |
| `knowledge` | Z of pre-training: shorter beginnings of the longest quarter of the articles |
| `text_spans` | X: the names and dates of `wikipedia` that Z states |
| `name_spans` | X: all names and dates of `wikipedia`, as in the paper |

X is English Wikipedia and Z is another encyclopedia, so a query never retrieves its own sentence.
A name or date of X is kept if its sentence contains the whole title of an article of Z whose
beginning states it, and does not repeat it. Of each passage of X, only spans that one and the same
beginning states are kept; this beginning is the evidence. The rules look at documents only.
"""

import json
import logging
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int32

from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.spans import FOLDER, SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.storage.layout import MANIFEST
from realm_jax.text.sentences import sentence_bounds
from realm_jax.text.wordpiece import WordPieces
from table2_small.corpora import (
    KNOWLEDGE_PIECES,
    SAMPLE,
    TAGGED_SPANS,
    VOCABULARY,
    Spans,
    built_and_marked,
    mark_shown,
    spelt,
)
from table2_small.titles import Titles

log = logging.getLogger(__name__)
ARTICLES = "simplewiki-2021.jsonl.xz"  # JSON lines: title, text
TEXT_ARTICLES = 1789  # of the sample, the first ones: a quarter
KEPT_SHARE = 0.25  # of the articles in pre-training, the longest ones
ANSWER_PIECES = 96  # of a passage that answers questions, special tokens included
QUERY_PIECES = 38  # of a sentence that fit into a query, without special tokens
_CHARACTERS = 1000  # of an article; its first 64 word pieces are in them

NO_EVIDENCE = -1


def make_encyclopedia(home: Path, data: Path, mark: Callable[[PassageStore, Path], object]) -> None:
    """Writes the corpora that all runs share; existing folders are kept.

    Args:
      home: folder of all runs.
      data: folder with the two encyclopedias and the vocabulary.
      mark: writes the names and dates of X to a folder.
    """
    sample = data / SAMPLE
    text = built_and_marked(home / "wikipedia", "wikiextractor", sample, mark, TEXT_ARTICLES)
    marked = SpanStore.open(text.path / TAGGED_SPANS, text)
    mark_shown(marked, text)
    for name, share, pieces in (
        ("knowledge", KEPT_SHARE, KNOWLEDGE_PIECES),
        ("encyclopedia", 1.0, ANSWER_PIECES),
    ):
        if not (home / name / MANIFEST).exists():
            passages = beginnings(data / ARTICLES, data / VOCABULARY, share, pieces)
            found = write_passages(home / name, passages, data / VOCABULARY)
            log.info("%s: the beginnings of %d articles", name, found["passages"])
    whole = PassageStore.open(home / "encyclopedia")
    if not (whole.path / FOLDER / MANIFEST).exists():
        mark_spans(whole, workers=2)  # a run over Z expects them
    knowledge = PassageStore.open(home / "knowledge")
    if not (home / "text_spans" / MANIFEST).exists():
        write_stated(home / "text_spans", marked, text, knowledge)
    if not (home / "name_spans" / MANIFEST).exists():
        every = [[(a, b) for a, b in marked.of(row).tolist()] for row in range(len(text))]
        unknown = np.full(len(text), NO_EVIDENCE, np.int64)
        SpanStore.write(
            home / "name_spans", text, every, source=unknown, evidence=unknown, knowledge=knowledge
        )


def beginnings(
    articles: Path, vocabulary: Path, share: float, pieces: int
) -> Iterator[tuple[str, Sequence[str]]]:
    """Title and first sentences of the longest articles.

    As many sentences as fit; if the first does not fit, its first words.

    Args:
      articles: JSON lines.
      vocabulary: a BERT vocab.txt.
      share: of the articles.
      pieces: most word pieces of title and sentences with special tokens.
    """
    lengths = np.array([len(text) for _, text in _read(articles)])
    count = max(1, round(share * len(lengths)))
    chosen = np.zeros(len(lengths), bool)
    chosen[np.argsort(-lengths, kind="stable")[:count]] = True
    words = WordPieces.load(vocabulary)
    for is_long, (title, text) in zip(chosen, _read(articles), strict=True):
        begin = _beginning(title, text[:_CHARACTERS], words, pieces) if is_long else []
        if begin:
            yield title, begin


def _read(articles: Path) -> Iterator[tuple[str, str]]:
    with lzma.open(articles, "rt", encoding="utf-8") as lines:
        for line in lines:
            article = json.loads(line)
            yield article["title"], article["text"]


def _beginning(title: str, text: str, words: WordPieces, pieces: int) -> list[str]:
    """The sentences; none if the article has no words."""
    found = [text[a:b] for a, b in sentence_bounds(text)]
    (of_title, _), *tokenized = words.pieces([title, *found])
    pairs = [(s, p) for s, p in zip(found, tokenized, strict=True) if len(p[0])]
    if not pairs:
        return []
    room = max(pieces - 3 - len(of_title), pieces // 2)
    ends = np.cumsum([len(ids) for _, (ids, _) in pairs])
    fitting = int(np.searchsorted(ends, room, "right"))
    if fitting:
        return [sentence for sentence, _ in pairs[:fitting]]
    sentence, (_, offsets) = pairs[0]
    return [sentence[: offsets[room - 1, 1]]]


def write_stated(out: Path, marked: SpanStore, text: PassageStore, knowledge: PassageStore) -> None:
    """Writes the spans of X that Z states, and the passage of Z that states them.

    Args:
      out: a new folder.
      marked: names and dates of X.
      text: X.
      knowledge: Z.
    """
    evidence = np.full(len(text), NO_EVIDENCE, np.int64)
    rows = partial(_stated, marked, text, Titles(knowledge), _Statements(knowledge))

    def spans() -> Iterator[Spans]:
        for row in range(len(text)):
            kept, evidence[row] = rows(row)
            yield kept

    kept = list(spans())
    made = SpanStore.write(
        out,
        text,
        kept,
        source=np.full(len(text), -1, np.int64),
        evidence=evidence,
        knowledge=knowledge,
    )
    log.info("X: %d spans in %d passages", made.manifest["spans"], len(made.rows))


class _Statements:
    """Which passages contain some word pieces in a row."""

    def __init__(self, store: PassageStore):
        self._bodies = [spelt(store.body_ids(row)) for row in range(len(store))]

    def of(self, pieces: Int32[np.ndarray, "n"], passages: set[int]) -> set[int]:
        """Those of the passages that contain the pieces."""
        wanted = spelt(pieces)
        return {passage for passage in passages if wanted in self._bodies[passage]}


def _stated(
    marked: SpanStore, text: PassageStore, titles: Titles, statements: _Statements, row: int
) -> tuple[Spans, int]:
    """The spans of a passage of X that one passage of Z states, and that passage."""
    pieces = text.body_ids(row)
    spans = marked.of(row)
    stating: list[tuple[tuple[int, int], set[int]]] = []
    for start, stop, inside in _sentences(text, row, spans):
        named = titles.named_whole(pieces[start:stop])
        for a, b in inside if named else ():
            around = (pieces[start:a], pieces[b:stop])
            if not any(spelt(pieces[a:b]) in spelt(part) for part in around):
                outside = named & set().union(*map(titles.named_whole, around))
                stating.append(((a, b), statements.of(pieces[a:b], outside)))
    counts = Counter(passage for _, passages in stating for passage in sorted(passages))
    if not counts:
        return [], NO_EVIDENCE
    best = max(counts, key=lambda passage: (counts[passage], -passage))
    return [span for span, passages in stating if best in passages], best


def _sentences(
    text: PassageStore, row: int, spans: Int32[np.ndarray, "s 2"]
) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """The part of each sentence that fits into a query, and the spans inside it."""
    bounds = text.sentences(row)
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        stop = min(end, start + QUERY_PIECES)
        inside = [(a, b) for a, b in spans.tolist() if start <= a and b <= stop]
        if inside:
            yield start, stop, inside
