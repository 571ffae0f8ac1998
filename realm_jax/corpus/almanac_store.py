"""The almanac on disk: knowledge corpus, pre-training and held-out text, questions."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.corpus.almanac import Almanac, Question, Sentence, write_almanac
from realm_jax.corpus.almanac_facts import all_facts
from realm_jax.corpus.spans import SpanStore, char_spans_to_pieces
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages
from realm_jax.errors import InputError
from realm_jax.text.vocabulary import train_vocabulary, write_vocabulary

VOCABULARY_SIZE = 8192
# Shipped with the weights that were trained on it, so that both always fit each other.
VOCABULARY = Path(__file__).parents[1] / "weights" / "vocab.txt"
DONE = "DONE"
KNOWLEDGE, PRETRAINING, HELD_OUT, QUESTIONS = "knowledge", "pretraining", "held_out", "questions"


def build_almanac(folder: str | Path) -> dict[str, Any]:
    """Writes the almanac under `folder`; one that is finished stays as it is.

    Returns:
      passages, facts, held_out_facts and the corpus_hash of the knowledge corpus.

    Raises:
      InputError: the folder holds something else.
    """
    folder = Path(folder)
    almanac = write_almanac(all_facts())
    if not (folder / DONE).is_file():
        _sweep(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, almanac)
        (folder / DONE).write_text("the almanac is whole\n")
    store = PassageStore.open(folder / KNOWLEDGE)
    held = len(almanac.held_out_sentences)
    return {
        "passages": len(store),
        "facts": len(almanac.sentences) + held,
        "held_out_facts": held,
        "corpus_hash": store.corpus_hash,
    }


def _sweep(folder: Path) -> None:
    """Deletes what a killed build left, and nothing that another hand put there."""
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    strange = sorted(present - {KNOWLEDGE, PRETRAINING, HELD_OUT, QUESTIONS})
    if strange:
        raise InputError(
            "folder for the almanac holds other files",
            where=folder,
            expected="a new or empty folder",
            found=", ".join(strange[:3]),
            fix="choose another folder",
        )
    for name in present:
        shutil.rmtree(folder / name)


def learn_vocabulary(path: Path) -> None:
    """The vocabulary of the almanac's own text; done once, by `experiments/warm_start.py`."""
    almanac = write_almanac(all_facts())
    texts = [" ".join((title, *sentences)) for title, sentences in almanac.passages]
    texts += [sentence.text for sentence in almanac.sentences]
    texts += [question.text for question in almanac.questions]
    write_vocabulary(path, train_vocabulary(texts, VOCABULARY_SIZE))


def _write(folder: Path, almanac: Almanac) -> None:
    write_passages(folder / KNOWLEDGE, almanac.passages, VOCABULARY)
    knowledge = PassageStore.open(folder / KNOWLEDGE)
    _write_sentences(folder / PRETRAINING, almanac.sentences, knowledge)
    _write_sentences(folder / HELD_OUT, almanac.held_out_sentences, knowledge)
    (folder / QUESTIONS).mkdir()
    _write_questions(folder / QUESTIONS / "train.jsonl", almanac.questions)
    _write_questions(folder / QUESTIONS / "held_out.jsonl", almanac.held_out_questions)


def _write_sentences(folder: Path, sentences: list[Sentence], knowledge: PassageStore) -> None:
    """One passage per sentence; the sentence stands in no passage of Z, so `own` is none."""
    write_passages(folder, [("", [sentence.text]) for sentence in sentences], VOCABULARY)
    store = PassageStore.open(folder)
    spans = [
        char_spans_to_pieces(store.body_offsets(row), [sentence.span])
        for row, sentence in enumerate(sentences)
    ]
    evidence = np.array([sentence.passage for sentence in sentences], np.int64)
    own = np.full(len(sentences), -1, np.int64)
    SpanStore.write(None, store, spans, source=own, evidence=evidence, knowledge=knowledge)


def _write_questions(path: Path, questions: list[Question]) -> None:
    records = [
        {"question": q.text, "answers": [q.answer], "evidence": q.passage} for q in questions
    ]
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
