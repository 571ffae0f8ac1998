"""Answers: their probabilities, and the text spans that they are extracted from."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

from realm_jax.inference.answerer import Answerer

QUESTIONS = [
    "what is the river?",
    "Café?",
    "what was AÑO",
    "日本",
    "in 1850, the tower of ulm",
    "?",
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_probabilities_sum_to_one_and_spans_contain_the_answer(answerer, question, k):
    answer = answerer.ask(question, k)
    assert len(answer.passages) == k
    assert sum(p.p_z for p in answer.passages) == pytest.approx(1, abs=1e-5)
    assert 0 < answer.probability <= 1 + 1e-6
    assert answer.answer
    spans = [p for p in answer.passages if p.span is not None]
    assert spans
    for passage in spans:
        start, stop = passage.span
        assert passage.text[start:stop].casefold() == answer.answer.casefold()
        assert passage.text == answerer.store.body(passage.id)
        assert passage.title == answerer.store.title(passage.id)
        assert 0 < passage.p_answer <= 1 + 1e-6
    for passage in answer.passages:
        assert (passage.span is None) == (passage.p_answer == 0)


def test_a_batch_gives_the_same_answers_as_single_questions(answerer):
    together = answerer.ask_all(QUESTIONS, 3)
    for question, one in zip(QUESTIONS, together, strict=True):
        alone = answerer.ask(question, 3)
        assert (alone.answer, alone.question) == (one.answer, question)
        assert alone.probability == pytest.approx(one.probability, rel=1e-4)


def test_answers_do_not_depend_on_the_order_of_index_rows(answerer, accents, tmp_path):
    order = np.array([3, 0, 5, 1, 4, 2])
    config = tiny_config(accents.folder)
    write_finished_run(tmp_path / "run", accents, config, rows=order)
    shuffled = Answerer.open(str(tmp_path / "run"))
    shuffled.networks = answerer.networks  # reuses compiled programs
    np.testing.assert_array_equal(shuffled.index.rows, order)
    np.testing.assert_array_equal(
        shuffled.index.vectors_of(np.arange(6)), answerer.index.vectors_of(np.arange(6))
    )
    for question in QUESTIONS:
        ours, theirs = answerer.ask(question, 4), shuffled.ask(question, 4)
        assert [p.id for p in ours.passages] == [p.id for p in theirs.passages]
        assert ours.probability == pytest.approx(theirs.probability, rel=1e-5)
        for mine, other in zip(ours.passages, theirs.passages, strict=True):
            assert mine.p_z == pytest.approx(other.p_z, rel=1e-5)


def _told(answerer: Answerer, places: dict[int, list[tuple[str, float]]]) -> Answerer:
    """An answerer whose reader scores only the given texts in the given passages."""
    told = copy.copy(answerer)
    scores = np.zeros((1, len(places)), np.float32)
    told.retrieve = lambda questions, rows, k: (np.array([sorted(places)]), scores)
    store = answerer.store

    def spans(joint, scores):
        body_starts = int((joint.mask[0, 0] & (joint.segments[0, 0] == 0)).sum())
        shape = (*joint.ids.shape, answerer.config.lengths.answer)
        found = np.full(shape, -np.inf, np.float32)
        for row, passage in enumerate(sorted(places)):
            offsets = store.body_offsets(passage).tolist()
            for text, score in places[passage]:
                at = store.body(passage).index(text)
                start = [a for a, _ in offsets].index(at)
                stop = [b for _, b in offsets].index(at + len(text))
                found[0, row, body_starts + start, stop - start] = score
        return found

    told.networks = SimpleNamespace(span_scores=spans)
    return told


def test_equal_answers_in_another_case_and_passage_are_summed(answerer):
    half = float(np.log(0.5))
    told = _told(
        answerer,
        {
            0: [("Café", 0.0), ("1850", half)],
            1: [("café", 0.0)],
            2: [("CAFÉ", half), ("1900", 0.0)],
            4: [("Ora", half)],
        },
    )
    answer = told.ask("?", 4)
    assert answer.answer.casefold() == "café"
    by_id = {p.id: p for p in answer.passages}
    total = 1 + 0.5 + 1 + 0.5 + 1 + 0.5
    assert answer.probability == pytest.approx((1 + 1 + 0.5) / total)
    assert by_id[0].p_answer == pytest.approx(1 / 1.5)
    assert by_id[1].p_answer == pytest.approx(1.0)
    assert by_id[2].p_answer == pytest.approx(0.5 / 1.5)
    assert by_id[4].p_answer == 0
    assert by_id[4].span is None
    texts = {i: by_id[i].text[slice(*by_id[i].span)] for i in (0, 1, 2)}
    assert texts == {0: "Café", 1: "café", 2: "CAFÉ"}


def test_an_answer_inside_a_longer_word_is_a_different_answer(answerer):
    told = _told(answerer, {2: [("CAFÉ", 1.0)], 5: [("Cafés", 0.0)]})
    answer = told.ask("?", 2)
    assert answer.answer == "CAFÉ"
    # The vocabulary has single characters, so the tokens of "Café" also occur in "Cafés";
    # the reader has no score for them there.
    assert {p.id: p.p_answer for p in answer.passages} == {2: pytest.approx(1.0), 5: 0.0}


@pytest.mark.parametrize(
    ("passage", "text"),
    [
        (0, "nai\u0308ve"),
        (0, "AÑO"),
        (1, "é́tée"),
        (3, "Straße"),
        (3, "İzmir"),
        (3, "日本"),
    ],
)
def test_answers_with_accents_are_extracted_completely(answerer, passage, text):
    answer = _told(answerer, {passage: [(text, 0.0)], 4: [("Ora", -1.0)]}).ask("?", 2)
    assert answer.answer == text
    found = next(p for p in answer.passages if p.id == passage)
    assert found.text[slice(*found.span)] == text
    assert found.p_answer == pytest.approx(1.0)
