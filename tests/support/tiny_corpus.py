"""A synthetic corpus for tests: a small vocabulary, passages, spans, questions and a small config.

The files are written by the same functions that users run.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.data.open_qa import Question
from realm_jax.defaults import STAGES
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.?"
_WORDS = ("the", "capital", "of", "is", "since", "river", "in", "what", "and", "was")
_VOCABULARY_SIZE = 96  # divisible by every mesh axis of eight devices
_COUNTRIES = ("Ora", "Ube", "Ilo", "Aru", "Eta", "Osk", "Ani", "Ulm", "Ibo", "Ero", "Ats", "Oni")


@dataclass(frozen=True)
class TinyCorpus:
    """The files that `write_tiny_corpus` writes, opened.

    Attributes:
      folder: folder of the passage store.
      store: passages of one to three sentences.
      spans: names and years in the passages.
      questions: one question per passage; that passage is its evidence.
    """

    folder: Path
    store: PassageStore
    spans: SpanStore
    questions: list[Question]


def passages(count: int) -> list[tuple[str, list[str]]]:
    """Returns (title, sentences) of each passage; at most 144."""
    found = []
    pairs = itertools.product(_COUNTRIES, _COUNTRIES[::-1])
    for number, (country, river) in enumerate(pairs):
        city = f"{river[::-1].capitalize()}{number}"
        sentences = [
            f"The capital of {country} is {city}.",
            f"The river in {city} was the {river} in {1500 + number}.",
            f"What was {country} since {1700 + number}?",
        ]
        found.append((country, sentences[: 1 + number % 3]))
    return found[:count]


def vocabulary() -> list[str]:
    """Special tokens, single characters (also as `##` continuations), ten words, unused tokens."""
    pieces = [*SPECIAL, *_CHARACTERS, *(f"##{c}" for c in _CHARACTERS), *_WORDS]
    return pieces + [f"[unused{number}]" for number in range(_VOCABULARY_SIZE - len(pieces))]


def write_tiny_corpus(folder: Path, count: int = 40) -> TinyCorpus:
    """Writes a vocabulary file, a passage store and its spans under `folder`."""
    write_vocabulary(folder / "vocab.txt", vocabulary())
    texts = passages(count)
    write_passages(folder / "corpus", texts, folder / "vocab.txt")
    store = PassageStore.open(folder / "corpus")
    questions = [
        Question(f"What is the capital of {title}?", (sentences[0].split()[-1].rstrip("."),), row)
        for row, (title, sentences) in enumerate(texts)
    ]
    return TinyCorpus(folder / "corpus", store, mark_spans(store), questions)


def tiny_config(knowledge: Path | str = "", **changes: Any) -> ConfigDict:
    """Returns a config whose training step takes milliseconds, and compiles one batch shape.

    Example: `tiny_config(corpus.folder, stages__ict__steps=4)`.

    Args:
      knowledge: folder of the knowledge corpus.
      changes: values of config keys, with `__` instead of dots in the key.
    """
    config = config_lib.default()
    sizes = {"layers": 2, "hidden": 16, "heads": 4, "mlp": 32, "embedding": 8, "positions": 64}
    config.model.update(sizes)
    config.lengths.update({"query": 24, "passage": 40, "joint": 56, "masks": 6, "answer": 5})
    config.lengths.fitted = False  # one batch shape to compile
    config.corpus.knowledge = str(knowledge)
    config.retrieval.candidates = 4
    config.search.kind = "exact"
    for stage in STAGES:
        config.stages[stage].update({"steps": 0, "batch": 8, "evaluate_every": 0})
        config.stages[stage].learning_rate = 1e-2
    config.stages.qa.update({"reader_passages": 2, "retriever_passages": 6})
    config.refresh.update({"every": 2, "mode": "sync", "wait_seconds": 60.0})
    config.builder.update({"shard": 16, "batch_pieces": 320, "probes": 8, "poll_seconds": 0.02})
    config.evaluation.queries = 8
    config.report.every = 1
    for name, value in changes.items():
        *parents, leaf = name.split("__")
        group = config
        for parent in parents:
            group = group[parent]
        group[leaf] = value
    return config_lib.check(config)
