"""Example inputs of the page: held-out questions first, then training questions, then sentences."""

import copy
import json

import pytest

from realm_jax.inference.fill_mask import MASK
from realm_jax.serve.examples import MOST_EXAMPLES, example_inputs


@pytest.fixture
def run(answerer):
    """The answerer with a config that a test may change."""
    other = copy.copy(answerer)
    other.config = answerer.config.copy_and_resolve_references().unlock()
    return other


def write_questions(path, texts):
    lines = [json.dumps({"question": text, "answers": ["x"]}) for text in texts]
    path.write_text("\n".join(lines) + "\n")


def test_held_out_questions_come_before_training_questions(run, tmp_path):
    run.config.corpus.questions = str(tmp_path)
    write_questions(tmp_path / "train.jsonl", [f"what was {n}?" for n in range(100)])
    trained = example_inputs(run, questions=True)
    assert trained == [f"what was {n}?" for n in (0, 20, 40, 60, 80)]
    write_questions(tmp_path / "held_out.jsonl", ["what is the river?"])
    assert example_inputs(run, questions=True) == ["what is the river?"]


def test_questions_that_do_not_fit_are_left_out(run, tmp_path):
    path = tmp_path / "questions.jsonl"
    write_questions(path, ["a river " * 40, "what is Ora?"])
    run.config.corpus.questions = str(path)
    assert example_inputs(run, questions=True) == ["what is Ora?"]


@pytest.mark.parametrize("questions", [True, False])
def test_without_questions_examples_are_sentences_with_a_blank(run, questions):
    found = example_inputs(run, questions=questions)
    assert 0 < len(found) <= MOST_EXAMPLES
    bodies = [run.store.body(row) for row in range(len(run.store))]
    for text in found:
        before, after = text.split(MASK)
        assert any(before in body and after in body for body in bodies)


def test_files_that_were_moved_are_reported_and_the_next_source_is_used(run, caplog):
    run.config.corpus.questions = "/gone/questions.jsonl"
    assert all(MASK in text for text in example_inputs(run, questions=True))
    run.config.corpus.pretraining = "/gone/corpus"
    assert example_inputs(run, questions=True) == []
    assert "/gone/questions.jsonl" in caplog.text and "/gone/corpus" in caplog.text
