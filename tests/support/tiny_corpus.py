"""A made-up land for tests: a tiny vocabulary, passages, spans and questions, and a tiny config.

Everything goes through the real writers, so what is tested on it is what users run.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.corpus.mark_spans import annotate
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.writer import write_passages
from realm_jax.data.open_qa import Question
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.text.wordpiece import SPECIAL

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.?"
_WORDS = ("the", "capital", "of", "is", "since", "river", "in", "what", "and", "was")
_SIZE = 96  # of the vocabulary; divides over every mesh of eight devices
_LANDS = ("Ora", "Ube", "Ilo", "Aru", "Eta", "Osk", "Ani", "Ulm", "Ibo", "Ero", "Ats", "Oni")


@dataclass(frozen=True)
class TinyCorpus:
    """What `write_tiny_corpus` wrote.

    Attributes:
      folder: of the passage store.
      store: passages, of one to three sentences each.
      spans: the names and years in them; the store is its own knowledge corpus.
      questions: one for each passage, which is its evidence.
    """

    folder: Path
    store: PassageStore
    spans: SpanStore
    questions: list[Question]


def passages(count: int) -> list[tuple[str, list[str]]]:
    """(title, sentences) of each passage."""
    made = []
    for number, (land, river) in enumerate(itertools.product(_LANDS, _LANDS[::-1])):
        city = f"{river[::-1].capitalize()}{number}"
        sentences = [
            f"The capital of {land} is {city}.",
            f"The river in {city} was the {river} in {1500 + number}.",
            f"What was {land} since {1700 + number}?",
        ]
        made.append((land, sentences[: 1 + number % 3]))
    return made[:count]


def vocabulary() -> list[str]:
    """Special pieces, single characters in both forms, a few words, and unused pieces."""
    pieces = [*SPECIAL, *_CHARACTERS, *(f"##{c}" for c in _CHARACTERS), *_WORDS]
    return pieces + [f"[unused{number}]" for number in range(_SIZE - len(pieces))]


def write_tiny_corpus(folder: Path, count: int = 40) -> TinyCorpus:
    """Writes vocabulary, store and spans under `folder`."""
    write_vocabulary(folder / "vocab.txt", vocabulary())
    land = passages(count)
    write_passages(folder / "land", land, folder / "vocab.txt")
    store = PassageStore.open(folder / "land")
    questions = [
        Question(f"What is the capital of {title}?", (sentences[0].split()[-1].rstrip("."),), row)
        for row, (title, sentences) in enumerate(land)
    ]
    return TinyCorpus(folder / "land", store, annotate(store), questions)


def tiny_config(knowledge: Path | str = "", **changes: Any) -> ConfigDict:
    """A config that a step of takes milliseconds; `changes` are dotted keys with `__` for dots.

    `tiny_config(land.folder, stages__ict__steps=4)`.
    """
    config = config_lib.default()
    sizes = {"layers": 2, "hidden": 16, "heads": 4, "mlp": 32, "embedding": 8, "positions": 64}
    config.model.update(sizes)
    config.lengths.update({"query": 24, "passage": 40, "joint": 56, "masks": 6, "answer": 5})
    config.corpus.knowledge = str(knowledge)
    config.retrieval.candidates = 4
    config.search.kind = "exact"
    for stage in config_lib.STAGES:
        config.stages[stage].update({"steps": 0, "batch": 8, "evaluate_every": 0})
        config.stages[stage].learning_rate = 1e-2
    config.stages.qa.update({"reader_passages": 2, "retriever_passages": 6})
    config.refresh.update({"every": 2, "mode": "sync", "wait_seconds": 60.0})
    config.builder.update({"shard": 16, "batch_pieces": 320, "probes": 8, "poll_seconds": 0.02})
    config.evaluation.queries = 8
    config.report.every = 1
    for name, value in changes.items():
        *parents, leaf = name.split("__")
        owner = config
        for parent in parents:
            owner = owner[parent]
        owner[leaf] = value
    return config_lib.check(config)
