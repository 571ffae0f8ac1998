"""Questions: reading their files, and every place where an answer stands."""

import json

import numpy as np
import pytest

from realm_jax.data.open_qa import (
    Question,
    QuestionSource,
    answer_spans,
    question_rows,
    questions_hash,
    read_questions,
)
from realm_jax.data.rows import Rows
from realm_jax.errors import InputError
from realm_jax.testing.fakes import tiny_config


def rows(ids, body):
    """One question with one passage, whose pieces from `body` on are its body and [SEP]."""
    array = np.array([[ids]], np.int32)
    segments = (np.arange(len(ids)) >= body).astype(np.int32)[None, None]
    return Rows(array, np.ones(array.shape, bool), segments)


def found(gold):
    return [(int(i), int(i + w)) for _, _, i, w in np.argwhere(gold)]


def test_every_occurrence_of_every_answer_in_the_body_is_gold():
    joint = rows([2, 7, 8, 3, 7, 8, 9, 7, 8, 3], body=4)
    answers = [[np.array([7, 8]), np.array([9])]]
    assert found(answer_spans(joint, answers, 3)) == [(4, 5), (6, 6), (7, 8)]


def test_answers_too_wide_or_empty_or_absent_are_never_gold():
    joint = rows([2, 3, 5, 6, 7, 3], body=2)
    answers = [[np.array([5, 6, 7]), np.array([], np.int32), np.array([9])]]
    assert not answer_spans(joint, answers, 2).any()
    assert found(answer_spans(joint, answers, 3)) == [(2, 4)]


def test_an_answer_across_the_edge_of_the_body_is_not_in_it():
    joint = rows([2, 5, 3, 6, 3], body=3)
    assert not answer_spans(joint, [[np.array([3, 6])]], 3).any()


def test_padding_is_no_body():
    joint = rows([2, 3, 5, 3, 0, 0], body=2)
    joint = joint._replace(mask=np.array([[[True] * 4 + [False] * 2]]))
    assert not answer_spans(joint, [[np.array([0])]], 3).any()


def test_question_source_joins_each_question_with_its_hits(tiny):
    config = tiny_config(tiny.folder)
    hits = np.tile(np.arange(6), (40, 1))
    hits[7] = [7, 0, 1, 2, 3, 4]
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    source = QuestionSource(tiny.questions, hits, vectors, tiny.store, config)
    batch = source.take(np.array([7, 0]))
    words = tiny.store.vocabulary
    assert words.decode(batch.questions.ids[0][batch.questions.mask[0]][1:-1]) == (
        tiny.questions[7].text.lower()
    )
    np.testing.assert_array_equal(batch.vectors[0], vectors[hits[7]])
    assert batch.gold.any((2, 3))[:, 0].all()
    start, width = np.argwhere(batch.gold[0, 0])[0]
    answer = batch.joint.ids[0, 0, start : start + width + 1]
    assert words.decode(answer) == tiny.questions[7].answers[0].lower()


def test_question_rows_are_cut_to_the_length_of_queries(tiny):
    rows = question_rows(["what is " * 30], tiny.store.vocabulary, 10)
    assert rows.ids.shape == (1, 10) and rows.ids[0, -1] == tiny.store.vocabulary.sep


def test_read_questions(tmp_path):
    path = tmp_path / "q.jsonl"
    record = {"question": "who?", "answers": ["me", 7], "evidence": 3}
    path.write_text(json.dumps(record) + "\n\n" + '{"question": "é", "answers": ["x"]}\n')
    assert read_questions(path) == [Question("who?", ("me", "7"), 3), Question("é", ("x",))]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", ":1"),
        ('{"question": "a", "answers": ["b"]}\n[]', ":2"),
        ('{"question": "a", "answers": []}', "answers"),
        ('{"question": 3, "answers": ["b"]}', "answers"),
        ("\n", "empty"),
    ],
)
def test_a_line_that_is_no_question_is_named(tmp_path, content, said):
    (tmp_path / "q.jsonl").write_text(content)
    with pytest.raises(InputError) as error:
        read_questions(tmp_path / "q.jsonl")
    assert said in str(error.value)


def test_missing_question_file(tmp_path):
    with pytest.raises(InputError, match="no question file"):
        read_questions(tmp_path / "none.jsonl")


def test_questions_hash_knows_other_questions_and_answers():
    one = [Question("a", ("b",))]
    others = ([Question("a", ("c",))], [Question("b", ("b",))], one * 2)
    assert questions_hash(one) == questions_hash([Question("a", ("b",))])
    assert len({questions_hash(o) for o in others} | {questions_hash(one)}) == 4
