"""Batches of questions: their hits, and the gold answer spans in the rows."""

import numpy as np
from support.tiny_corpus import tiny_config

from realm_jax.data.answers import accepted
from realm_jax.data.open_qa import (
    Question,
    QuestionSource,
    answer_spans,
    question_rows,
    questions_hash,
)
from realm_jax.data.rows import joint_rows


def gold_texts(store, questions, hits, length, widest=5):
    """The texts of the gold spans of each row."""
    rows = question_rows([q.text for q in questions], store.vocabulary, 12)
    joint = joint_rows(rows, store, hits, length)
    gold = answer_spans(joint, hits, [accepted(q) for q in questions], store, widest)
    texts = [[[] for _ in row] for row in hits]
    for row, hit, first, width in np.argwhere(gold):
        pieces = joint.ids[row, hit, first : first + width + 1]
        assert (joint.segments[row, hit, first : first + width + 1] == 1).all()
        texts[row][hit].append(store.vocabulary.decode(pieces))
    return texts


def test_gold_marks_the_answers_in_the_row(tiny):
    # Passages 4 and 5: "The river in Eta4 was the Ate in 1504." and "... Oso5 ... Oso in 1505."
    questions = [
        Question("which river?", ("the river", "1504.")),
        Question("when?", (r"150\d",), expression=True),
    ]
    hits = np.array([[4, 5], [5, 4]])
    bodies = [[tiny.store.body(p) for p in row] for row in hits.tolist()]
    assert "1504" in bodies[0][0] and "1505" in bodies[1][0]
    found = gold_texts(tiny.store, questions, hits, 56)
    assert found[0][0] == ["the river", "1504."]
    assert found[0][1] == ["the river"]
    assert found[1] == [["1505"], ["1504"]]


def test_a_truncated_answer_is_not_gold(tiny):
    question = Question("when?", ("1504",))
    hits = np.array([[4]])
    lengths = range(13, 64)
    found = [bool(gold_texts(tiny.store, [question], hits, n)[0][0]) for n in lengths]
    assert found == sorted(found) and found[-1] and not found[0]
    shortest = lengths[found.index(True)]
    body_starts = 2 + len(tiny.store.vocabulary.pieces(["when?"])[0][0])
    offsets = tiny.store.body_offsets(4)
    end = tiny.store.body(4).index("1504") + 4
    assert shortest == body_starts + offsets[:, 1].tolist().index(end) + 1 + 1


def test_an_answer_wider_than_the_limit_is_not_gold(tiny):
    question = Question("when?", ("1504", "river"))
    found = [gold_texts(tiny.store, [question], np.array([[4]]), 56, w)[0][0] for w in (3, 4)]
    assert found == [["river"], ["river", "1504"]]


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


def test_question_rows_are_truncated_to_the_query_length(tiny):
    rows = question_rows(["what is " * 30], tiny.store.vocabulary, 10)
    assert rows.ids.shape == (1, 10) and rows.ids[0, -1] == tiny.store.vocabulary.sep


def test_questions_hash_depends_on_questions_and_answers():
    one = [Question("a", ("b",))]
    others = ([Question("a", ("c",))], [Question("b", ("b",))], one * 2)
    assert questions_hash(one) == questions_hash([Question("a", ("b",))])
    assert len({questions_hash(o) for o in others} | {questions_hash(one)}) == 4
