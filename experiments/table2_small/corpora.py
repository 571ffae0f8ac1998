"""Builds the corpora Z and X and the masked spans of X from a sample of Wikipedia.

| folder | content |
|---|---|
| `wikipedia` | the whole sample, in passages of at most 160 word pieces |
| `wikipedia/tagged_spans` | names and dates of the sample |
| `wikipedia/shown_spans` | those in sentences that end within the first 60 pieces of a passage |
| `knowledge` | Z: the first sentences of every article, at most 64 pieces |
| `text_spans` | X: names and dates of all other passages that occur in Z |
| `news`, `news/tagged_spans` | Reuters news, and its names and dates |
| `news_spans` | the second X: names and dates of news that occur in Z |

X and Z share no passage, so a query never retrieves the masked sentence itself. A name or date of X
is kept if the first sentences of the same article contain it (one in five) and its sentence also
contains a rare piece of the article's title (one in four of these). The masked span can then be
read in Z, and the sentence identifies the passage. Without this rule the small model would see
twenty times as many spans. A news story has no article in Z; there, any article counts whose title
the sentence names.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int32, Int64
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.corpus.readers import read
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages, write_store
from realm_jax.corpus.tally import Skipped
from realm_jax.storage.layout import MANIFEST
from realm_jax.tagging.mark_corpus import annotate_corpus
from realm_jax.tagging.marker import TaggerMarker
from realm_jax.tagging.published_tagger import PublishedTagger
from realm_jax.tagging.small_tagger import tagger_config
from realm_jax.tagging.tagger import Tagger
from realm_jax.tagging.train import train_tagger
from table2_small.titles import Titles

log = logging.getLogger(__name__)
SAMPLE, VOCABULARY = "enwiki-2018-sample.wikiextractor.tar.xz", "bert-base-uncased-vocab.txt"
NEWS = "reuters21578.tar.xz"
TAGGED = "conll2003.en.train.txt.xz"
TAGGED_SPANS, SHOWN_SPANS = "tagged_spans", "shown_spans"
TEXT_PIECES, KNOWLEDGE_PIECES = 160, 64  # passage lengths of X and Z, special tokens included
SHOWN_PIECES = 60  # pieces of a passage that fit into a reader row with any query
QUERY_PIECES = 30  # pieces of a sentence that fit into a query, without special tokens

Spans = list[tuple[int, int]]


def make_corpora(home: Path, data: Path, base: ConfigDict, stop: threading.Event) -> None:
    """Writes the corpora that all runs share; existing folders are kept.

    Args:
      home: folder of all runs.
      data: folder with the sample, the vocabulary and the tagged text.
      base: the base config, with the settings of the tagger.
      stop: ends tagger training and annotation; another call resumes them.

    Raises:
      Stopped, Interrupted: a stop signal arrived.
      RealmError: see the message.
    """

    def mark(store: PassageStore, out: Path) -> None:
        config = tagger_config()
        config.stages.tagger.update(base.stages.tagger)
        tagger, published = trained_tagger(home / "tagger", data, config, stop)
        annotate_corpus(store, out, TaggerMarker(tagger, published.identity), stopped=stop.is_set)

    text = built_and_marked(home / "wikipedia", "wikiextractor", data / SAMPLE, mark)
    news = built_and_marked(home / "news", "reuters", data / NEWS, mark)
    cut_corpora(home, SpanStore.open(text.path / TAGGED_SPANS, text), text, data / VOCABULARY)
    tie_news(home, SpanStore.open(news.path / TAGGED_SPANS, news), news)


def built_and_marked(
    folder: Path,
    format: str,
    source: Path,
    mark: Callable[[PassageStore, Path], object],
    most: int | None = None,
) -> PassageStore:
    """A corpus with its names and dates in `tagged_spans`; existing folders are kept.

    Args:
      folder: of the corpus.
      format: of `source`.
      source: an archive; the vocabulary is in the same folder.
      mark: writes the spans of a corpus to a folder.
      most: documents, the first ones; None: all.
    """
    if not (folder / MANIFEST).exists():
        skipped = Skipped()
        write_store(
            folder,
            islice(read(format, str(source), skipped), most),
            source.parent / VOCABULARY,
            passage_pieces=TEXT_PIECES,
            workers=2,
            skipped=skipped,
        )
    store = PassageStore.open(folder)
    if not (folder / TAGGED_SPANS / MANIFEST).exists():
        mark(store, folder / TAGGED_SPANS)
    return store


def trained_tagger(
    workdir: Path, data: Path, config: ConfigDict, stop: threading.Event
) -> tuple[Tagger, PublishedTagger]:
    """The tagger in `workdir`; trains it with `config` on the tagged text if needed."""
    config.stages.tagger.train_file = str(data / TAGGED)
    config.stages.tagger.vocabulary = str(data / VOCABULARY)
    train_tagger(str(workdir), config_lib.check(config), stop)
    return Tagger.open(str(workdir))


def cut_corpora(home: Path, marked: SpanStore, text: PassageStore, vocabulary: Path) -> None:
    """Writes Z, the spans of X that occur in Z, and the spans in shown sentences."""
    mark_shown(marked, text)
    knowledge = home / "knowledge"
    first = begins(text)
    if not (knowledge / MANIFEST).exists():
        leads = (_lead(text, int(row)) for row in np.flatnonzero(first))
        found = write_passages(knowledge, leads, vocabulary)
        log.info("Z: %d passages of %d articles", found["passages"], found["documents"])
    store, article = PassageStore.open(knowledge), np.cumsum(first) - 1
    if not (home / "text_spans" / MANIFEST).exists():
        SpanStore.write(
            home / "text_spans",
            text,
            _spans_of_the_rest(marked, text, store, article, first),
            source=np.full(len(text), -1, np.int64),
            evidence=article,
            knowledge=store,
        )


def mark_shown(marked: SpanStore, text: PassageStore) -> None:
    """Writes the spans in shown sentences, unless they exist."""
    shown = text.path / SHOWN_SPANS
    if not (shown / MANIFEST).exists():
        SpanStore.write(shown, text, _shown(marked, text), source=np.arange(len(text)))


def _shown(marked: SpanStore, text: PassageStore) -> Iterator[Spans]:
    for row in range(len(marked)):
        ends = text.sentences(row)
        yield [(a, b) for a, b in marked.of(row).tolist() if ends[ends > a][0] <= SHOWN_PIECES]


def begins(text: PassageStore) -> Bool[np.ndarray, "N"]:
    """True on the first passage of every article."""
    documents = np.fromiter(map(text.document, range(len(text))), np.int64, len(text))
    return np.diff(documents, prepend=-1) > 0


def _lead(text: PassageStore, row: int) -> tuple[str, list[str]]:
    """Title and first sentences of an article: as many as fit, at least one."""
    room = KNOWLEDGE_PIECES - 3 - len(text.title_ids(row))
    body, offsets = text.body(row), text.body_offsets(row)
    bounds = list(pairwise(text.sentences(row).tolist()))
    kept = [pair for pair in bounds if pair[1] <= room] or bounds[:1]
    return text.title(row), [body[offsets[a, 0] : offsets[b - 1, 1]] for a, b in kept]


def _spans_of_the_rest(
    marked: SpanStore,
    text: PassageStore,
    knowledge: PassageStore,
    article: Int64[np.ndarray, "N"],
    first: Bool[np.ndarray, "N"],
) -> Iterator[Spans]:
    """Spans that the first sentences of the article contain; none in those sentences themselves.

    The sentence of a span names the article outside the span.
    """
    titles = Titles(knowledge)
    said, of = "", -1
    for row in range(len(marked)):
        if article[row] != of:
            of = int(article[row])
            said = spelt(knowledge.body_ids(of))
        pieces = text.body_ids(row)
        yield [
            (a, b)
            for a, b in ([] if first[row] else marked.of(row).tolist())
            if spelt(pieces[a:b]) in said and of in titles.named(_around(text, row, a, b))
        ]


def tie_news(home: Path, marked: SpanStore, news: PassageStore) -> None:
    """Writes the spans of news that occur in a passage whose title their sentence names."""
    if (home / "news_spans" / MANIFEST).exists():
        return
    knowledge = PassageStore.open(home / "knowledge")
    titles = Titles(knowledge)
    bodies = [spelt(knowledge.body_ids(row)) for row in range(len(knowledge))]

    def tied(row: int) -> Spans:
        pieces = news.body_ids(row)
        return [
            (a, b)
            for a, b in marked.of(row).tolist()
            if any(
                spelt(pieces[a:b]) in bodies[named]
                for named in titles.named(_around(news, row, a, b))
            )
        ]

    nowhere = np.full(len(news), -1, np.int64)
    SpanStore.write(
        home / "news_spans",
        news,
        map(tied, range(len(news))),
        source=nowhere,
        evidence=nowhere,
        knowledge=knowledge,
    )


def _around(text: PassageStore, row: int, a: int, b: int) -> Int32[np.ndarray, "n"]:
    """The pieces of a span's sentence that fit into a query, without the span."""
    pieces, bounds = text.body_ids(row), text.sentences(row)
    begin, end = bounds[bounds <= a][-1], bounds[bounds > a][0]
    return np.append(pieces[begin:a], pieces[b : min(end, begin + QUERY_PIECES)])


def spelt(pieces: Int32[np.ndarray, "n"]) -> str:
    """Pieces as a string in which a sequence of pieces can be searched."""
    return f" {' '.join(map(str, pieces.tolist()))} "
