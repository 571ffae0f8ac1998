"""Evaluation of handwritten predictions."""

import json

import jax
import numpy as np
import pytest
from etils import epath

from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.open_qa import Question
from realm_jax.data.rows import NULL_PASSAGE, joint_rows
from realm_jax.inference.answerer import Answer, Answerer
from realm_jax.inference.evaluate import closed_book, evaluate, judge
from realm_jax.inference.evidence import Evidence
from realm_jax.inference.prediction_file import PredictionFile
from realm_jax.models.modules import Modules


class FixedAnswerer(Answerer):
    """Returns given answers, hits and read passages."""

    def with_results(
        self, answers: dict[str, str], found: dict[str, list[int]], read: int
    ) -> "FixedAnswerer":
        self.answers, self.found, self.reads, self.asked = answers, found, read, []
        return self

    def retrieve(self, questions, rows, k):
        self.asked.append(_question_texts(self.store, rows))
        found = np.array([self.found[question] for question in self.asked[-1]])
        return found[:, :k], np.zeros(found[:, :k].shape, np.float32)

    def read(self, questions, rows, found, scores):
        assert questions == self.asked[-1]
        assert found.shape == scores.shape
        assert found.shape[1] <= self.config.stages.qa.reader_passages
        return [self._answer(question) for question in questions]

    def _answer(self, question):
        store, read = self.store, self.found[question][: self.reads]
        passages = [
            Evidence(i, store.title(i), store.body(i), 0.5, 0.0, None if n else (0, 3))
            for n, i in enumerate(read)
        ]
        return Answer(question, self.answers[question], 0.5, 4, passages)


def _question_texts(store, rows):
    """Decodes the questions from their rows."""
    pieces = [ids[mask][1:-1] for ids, mask in zip(rows.ids, rows.mask, strict=True)]
    return ["".join(store.vocabulary.decode(one).split()) for one in pieces]


@pytest.fixture(scope="module")
def fixed(answerer):
    return FixedAnswerer(answerer.run, answerer.export, answerer.config, answerer.current)


# accented_run has: 0 Żywiec (Café, AÑO, 1850), 1 Café, 2 Menu (CAFÉ, 1900), 3 Straße (İzmir),
# 4 River (Ora), 5 Tower (Cafés, Ulm, river).
QUESTIONS = [
    Question("q1", ("The Café", "bar"), evidence=2),
    Question("q2", ("Ora",), evidence=0),
    Question("q3", ("nothing",)),
    Question("q4", ("A.Ñ.O.",), evidence=5),
    Question("q5", (r"U?lm|1[89]\d0",), expression=True),
]
SAID = {"q1": "cafe\u0301", "q2": "Oro", "q3": "Nothing!", "q4": "año", "q5": "1900 or so"}
FOUND = {
    "q1": [3, 4, 2, 1, 0, 5],
    "q2": [5, 4, 3, 2, 1, 0],
    "q3": [0, 1, 2, 3, 4, 5],
    "q4": [1, 5, 2, 3, 4, 0],
    "q5": [2, 0, 1, 3, 4, 5],
}


def test_exact_match_recall_and_oracle_equal_hand_computed_values(fixed, tmp_path):
    answerer = fixed.with_results(SAID, FOUND, 2)
    with PredictionFile.open(epath.Path(tmp_path / "predictions.jsonl")) as predictions:
        report = evaluate(answerer, QUESTIONS, predictions)
    assert report["questions"] == 5
    assert report["exact_match"] == pytest.approx(4 / 5)
    # First hit that contains an answer: 3rd, 2nd, none, 6th, 1st.
    assert report["recall_at"] == pytest.approx({"1": 1 / 5, "5": 3 / 5, "20": 4 / 5, "100": 4 / 5})
    assert report["reader_oracle"] == pytest.approx(2 / 5)
    # Ranks of the evidence: 3, 6 and 2; q3 and q5 have no evidence.
    evidence = {"1": 0.0, "5": 2 / 3, "20": 1.0, "100": 1.0}
    assert report["evidence_recall_at"] == pytest.approx(evidence)
    lines = (tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["question"] for r in records] == ["q1", "q2", "q3", "q4", "q5"]
    assert [r["right"] for r in records] == [True, False, True, True, True]
    assert [r["reader_oracle"] for r in records] == [False, True, False, False, True]
    assert [r["answer_rank"] for r in records] == [3, 2, None, 6, 1]
    assert records[1]["prediction"] == "Oro" and records[3]["answers"] == ["A.Ñ.O."]
    assert [p["id"] for p in records[1]["passages"]] == [5, 4]
    assert records[1]["passages"][1]["text"] == fixed.store.body(4)


def test_no_answer_is_never_right(fixed):
    """A run without a reader gives none; `The` and `.*` would match an empty text."""
    questions = [Question("q1", ("The",)), Question("q5", (".*",), expression=True)]
    report = evaluate(fixed.with_results({"q1": "", "q5": ""}, FOUND, 2), questions)
    assert (report["exact_match"], report["f1"]) == (0, 0)


@pytest.mark.parametrize(
    ("deepest", "answers", "evidence"),
    [
        (2, [None, 2, None, None, 1], [None, None, None, 2, None]),
        (3, [3, 2, None, None, 1], [3, None, None, 2, None]),
    ],
)
def test_ranks_are_those_of_the_best_passages_only(fixed, deepest, answers, evidence):
    judged = judge(fixed.with_results(SAID, FOUND, 2), QUESTIONS, deepest=deepest)
    assert [one.answer_rank for one in judged] == answers
    assert [one.evidence_rank for one in judged] == evidence
    assert [one.right for one in judged] == [True, False, True, True, True]


def test_the_oracle_counts_only_answers_that_a_span_can_hold(fixed):
    # An answer has at most five tokens, and "1850" is four tokens.
    questions = [Question("q1", ("in 1850",)), Question("q2", ("AÑO in 1850",))]
    found = {"q1": [0, 1, 2, 3, 4, 5], "q2": [0, 1, 2, 3, 4, 5]}
    report = evaluate(fixed.with_results({"q1": "x", "q2": "x"}, found, 1), questions)
    assert fixed.config.lengths.answer == 5
    assert report["recall_at"]["1"] == 1.0
    assert report["reader_oracle"] == 0.5


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_every_question_is_scored_once(fixed, count):
    questions = [Question(f"q{i}", ("yes",)) for i in range(count)]
    answers = {f"q{i}": "yes" if i < count / 2 else "no" for i in range(count)}
    fixed.with_results(answers, {question: [0, 1] for question in answers}, 1)
    report = evaluate(fixed, questions)
    assert report["questions"] == count
    assert report["exact_match"] == pytest.approx(-(-count // 2) / count)
    assert report["evidence_recall_at"] == {}
    assert [len(asked) for asked in fixed.asked] == [64] * -(-count // 64)


def test_closed_book_exact_match_uses_no_passage(answerer, accents):
    text = MaskedTextSource(accents.store, accents.spans, answerer.config).first(6)
    predicted = _predicted_without_passage(answerer, text)
    text = text._replace(targets=predicted.astype(np.int32))
    assert closed_book(answerer, text) == 1.0
    wrong = predicted.copy()
    wrong[0, 0] += 1  # one wrong token makes the answer wrong
    padding = int(np.flatnonzero(text.weights[1] == 0)[0])
    wrong[1, padding] += 1  # padding positions are not scored
    count = len(predicted)
    assert closed_book(answerer, text._replace(targets=wrong.astype(np.int32))) == pytest.approx(
        (count - 1) / count
    )


def _predicted_without_passage(answerer, text):
    """Returns the most likely tokens of the reader, computed one row at a time."""
    modules = Modules(answerer.config.model, answerer.store.vocabulary.size, ("reader",))
    parameters = {"reader": jax.device_put(answerer.export.networks["reader"])}
    logits = jax.jit(lambda one: modules.bind(parameters).reader.mlm_logits(*one))
    null = np.full((len(text.source), 1), NULL_PASSAGE, np.int64)
    joint = joint_rows(text.queries, answerer.store, null, answerer.config.lengths.joint)
    arrays = [*(part[:, 0] for part in joint), text.positions]
    rows = [logits([part[i : i + 1] for part in arrays]) for i in range(len(text.source))]
    return np.concatenate(rows).argmax(-1)
