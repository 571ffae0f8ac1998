"""Evaluation against predictions written down by hand."""

import json

import jax
import numpy as np
import pytest

from realm_jax.answer.answerer import Answer, Answerer
from realm_jax.answer.evaluate import closed_book, evaluate
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import Question
from realm_jax.data.rows import NULL_PASSAGE, joint_rows
from realm_jax.models.modules import Modules


class Told(Answerer):
    """Says what it was told to, and retrieves what it was told to."""

    def tell(self, said: dict[str, str], found: list[list[int]]) -> "Told":
        self.said, self.found, self.asked = said, np.array(found), 0
        return self

    def ask_all(self, questions, k=5):
        self.asked += 1
        return [Answer(q, self.said[q], 0.5, 4, []) for q in questions]

    def retrieve(self, rows, k):
        assert len(rows.ids) == len(self.found)
        return self.found, np.zeros(self.found.shape)


@pytest.fixture(scope="module")
def told(answerer):
    return Told(answerer.export, answerer.index, answerer.store)


def test_exact_match_and_recall_by_hand(told, tmp_path):
    questions = [
        Question("q1", ("The Café", "bar"), evidence=2),
        Question("q2", ("Ora",), evidence=0),
        Question("q3", ("nothing",)),
        Question("q4", ("U.S.",), evidence=5),
    ]
    said = {"q1": "cafe\u0301", "q2": "Oro", "q3": "Nothing!", "q4": "us"}
    told.tell(said, [[2, 1, 0, 3, 4, 5], [5, 4, 3, 2, 1, 0], [1, 5, 0, 2, 3, 4]])
    report = evaluate(told, questions, tmp_path / "predictions.jsonl")
    assert report["questions"] == 4
    assert report["exact_match"] == pytest.approx(3 / 4)
    assert report["recall_at"] == pytest.approx({"1": 1 / 3, "5": 2 / 3, "20": 1.0})
    lines = (tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [(r["question"], r["right"]) for r in records] == [
        ("q1", True),
        ("q2", False),
        ("q3", True),
        ("q4", True),
    ]
    assert records[1]["prediction"] == "Oro"


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_every_question_is_judged_once(told, count):
    questions = [Question(f"q{i}", ("yes",)) for i in range(count)]
    told.tell({f"q{i}": "yes" if i < count / 2 else "no" for i in range(count)}, [[]])
    report = evaluate(told, questions)
    assert report["questions"] == count
    assert report["exact_match"] == pytest.approx(-(-count // 2) / count)
    assert report["recall_at"] == {}
    assert told.asked == -(-count // 64)


def test_closed_book_counts_whole_answers_without_a_passage(answerer, accents):
    text = MaskedTextSource(accents.store, accents.spans, answerer.config).first(6)
    said = _said_without_passage(answerer, text)
    text = text._replace(targets=said.astype(np.int32))
    assert closed_book(answerer, text) == 1.0
    wrong = said.copy()
    wrong[0, 0] += 1  # one wrong piece is a wrong answer
    padding = int(np.flatnonzero(text.weights[1] == 0)[0])
    wrong[1, padding] += 1  # what is not masked is not judged
    count = len(said)
    assert closed_book(answerer, text._replace(targets=wrong.astype(np.int32))) == pytest.approx(
        (count - 1) / count
    )


def _said_without_passage(answerer, text):
    """The reader's likeliest pieces, one row at a time."""
    modules = Modules(answerer.config.model, answerer.store.vocabulary.size, ("reader",))
    parameters = {"reader": jax.device_put(answerer.export.networks["reader"])}
    logits = jax.jit(lambda one: modules.bind(parameters).reader.mlm_logits(*one))
    null = np.full((len(text.own), 1), NULL_PASSAGE, np.int64)
    joint = joint_rows(text.queries, answerer.store, null, answerer.config.lengths.joint)
    arrays = [*(part[:, 0] for part in joint), text.positions]
    rows = [logits([part[i : i + 1] for part in arrays]) for i in range(len(text.own))]
    return np.concatenate(rows).argmax(-1)
