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
# In the same folder as the weights that were trained with it, so that they always match.
VOCABULARY = Path(__file__).parents[1] / "weights" / "vocab.txt"
DONE = "DONE"
KNOWLEDGE, PRETRAINING, HELD_OUT, QUESTIONS = "knowledge", "pretraining", "held_out", "questions"


def build_almanac(folder: str | Path) -> dict[str, Any]:
    """Writes the almanac to `folder`; a finished one is not changed.

    Returns:
      passages, facts, held_out_facts and the corpus_hash of the knowledge corpus.

    Raises:
      InputError: the folder holds other files.
    """
    folder = Path(folder)
    almanac = write_almanac(all_facts())
    if not (folder / DONE).is_file():
        _delete_unfinished(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, almanac)
        (folder / DONE).write_text("the almanac is complete\n")
    store = PassageStore.open(folder / KNOWLEDGE)
    held = len(almanac.held_out_sentences)
    return {
        "passages": len(store),
        "facts": len(almanac.sentences) + held,
        "held_out_facts": held,
        "corpus_hash": store.corpus_hash,
    }


def _delete_unfinished(folder: Path) -> None:
    """Deletes the files of a killed build; raises if there are any others."""
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    others = sorted(present - {KNOWLEDGE, PRETRAINING, HELD_OUT, QUESTIONS})
    if others:
        raise InputError(
            "folder for the almanac holds other files",
            where=folder,
            expected="a new or empty folder",
            found=", ".join(others[:3]),
            fix="choose another folder",
        )
    for name in present:
        shutil.rmtree(folder / name)


def learn_vocabulary(path: Path) -> None:
    """Trains the vocabulary on the text of the almanac; called by `experiments/warm_start.py`."""
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
    """Writes one passage per sentence. No passage of Z contains the sentence, so `source` is -1."""
    write_passages(folder, [("", [sentence.text]) for sentence in sentences], VOCABULARY)
    store = PassageStore.open(folder)
    spans = [
        char_spans_to_pieces(store.body_offsets(row), [sentence.span])
        for row, sentence in enumerate(sentences)
    ]
    evidence = np.array([sentence.passage for sentence in sentences], np.int64)
    source = np.full(len(sentences), -1, np.int64)
    SpanStore.write(None, store, spans, source=source, evidence=evidence, knowledge=knowledge)


def _write_questions(path: Path, questions: list[Question]) -> None:
    records = [
        {"question": q.text, "answers": [q.answer], "evidence": q.passage} for q in questions
    ]
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
