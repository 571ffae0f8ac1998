"""Example inputs for the page: questions of the run, or sentences with a blank."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from ml_collections import ConfigDict

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data.question_files import read_questions
from realm_jax.errors import RealmError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.fill_mask import MASK
from realm_jax.trainer.inputs import trains_on_masks

MOST_EXAMPLES = 5
_TRIED = 50  # questions or passages tried, so that a few unusable ones leave enough

log = logging.getLogger(__name__)
Item = TypeVar("Item")


def example_inputs(answerer: Answerer, *, questions: bool) -> list[str]:
    """Returns up to `MOST_EXAMPLES` inputs that fit the query length, spread over their source.

    Args:
      answerer: the run; its config names the sources.
      questions: whether the run answers questions; if not, or if its config names no questions,
        the examples are sentences of its masked text with one `[MASK]`, unless it trained on none.
    """
    config = answerer.config
    sources = [_questions] if questions and config.corpus.questions else []
    sources += [_masked_sentences] * trains_on_masks(config)
    for source in sources:
        try:
            fitting = [text for text in dict.fromkeys(source(config)) if _fits(answerer, text)]
        except RealmError as error:  # the files were moved; answering does not need them
            log.warning("the page shows no examples from these files:\n%s", error)
            continue
        if fitting:
            return _spread(fitting, MOST_EXAMPLES)
    return []


def _questions(config: ConfigDict) -> Iterable[str]:
    """Held-out questions if their file lies in the questions folder; else training questions."""
    path = Path(config.corpus.questions)
    if path.is_dir():
        held_out = path / "held_out.jsonl"
        path = held_out if held_out.is_file() else path / "train.jsonl"
    found = read_questions(path, config.corpus.questions_format, config.corpus.questions_part)
    return _spread([question.text for question in found], _TRIED)


def _masked_sentences(config: ConfigDict) -> Iterable[str]:
    """Sentences with one salient span replaced by `[MASK]`, in their original spelling."""
    corpus = config.corpus
    folder = corpus.held_out or corpus.pretraining or corpus.knowledge
    store = PassageStore.open(folder)
    spans = SpanStore.open(None if corpus.held_out else corpus.spans or None, store)
    for row in _spread(spans.rows.tolist(), _TRIED):
        start, stop = spans.of(row)[0].tolist()
        sentence = next(
            (first, last)
            for first, last in itertools.pairwise(store.sentences(row).tolist())
            if first <= start < last
        )
        body, offsets = store.body(row), store.body_offsets(row)
        if stop <= sentence[1]:
            before = body[offsets[sentence[0], 0] : offsets[start, 0]]
            after = body[offsets[stop - 1, 1] : offsets[sentence[1] - 1, 1]]
            yield f"{before}{MASK}{after}"


def _fits(answerer: Answerer, text: str) -> bool:
    """Whether a text is a query of the model, with one `[MASK]` at most and room to fill it."""
    pieces = answerer.store.vocabulary.pieces([text.replace(MASK, "")])[0][0]
    room = answerer.config.lengths.query - 2 - answerer.config.lengths.masks
    return text.count(MASK) <= 1 and 0 < len(pieces) <= room


def _spread(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` items at equal distances."""
    step = max(len(items) / count, 1.0)
    return [items[int(number * step)] for number in range(min(count, len(items)))]
