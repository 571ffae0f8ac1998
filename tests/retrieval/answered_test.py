"""Sentences drawn for a query: the first whose hidden words a candidate has."""

import jax
import numpy as np
import pytest
from support import finished_run
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.data.masked_text import MaskedText
from realm_jax.data.rows import NULL_PASSAGE, query_rows
from realm_jax.errors import ConfigError
from realm_jax.report.baselines import _has
from realm_jax.retrieval.answered import _has_all, first_answered
from realm_jax.storage.layout import RunDir
from realm_jax.trainer.index_manager import IndexManager
from realm_jax.trainer.inputs import open_inputs
from realm_jax.trainer.knowledge import Knowledge
from realm_jax.trainer.realm_stage import RealmStage

SLOTS = 4


def text_of(store, hidden, positions=None):
    """Queries of which these word pieces are hidden; the source is their row."""
    size = len(hidden)
    made = {name: np.zeros((size, SLOTS), np.int32) for name in ("positions", "targets")}
    weights = np.zeros((size, SLOTS), np.float32)
    for row, pieces in enumerate(hidden):
        count = len(pieces)
        made["targets"][row, :count] = pieces
        made["positions"][row, :count] = positions or range(1, count + 1)
        weights[row, :count] = 1
    rows = query_rows([np.arange(3)] * size, 8, store.vocabulary)
    unknown = np.full(size, -1)
    return MaskedText(rows, rows, made["positions"], made["targets"], weights, unknown, unknown)


def candidates(*passages, valid=True):
    ids = np.array([[NULL_PASSAGE, passage] for passage in passages])
    return ids, np.array([[True, valid]] * len(passages))


def test_the_first_draw_that_a_candidate_answers_is_taken(tiny):
    store = tiny.store
    said, other = store.body_ids(3)[2:5].tolist(), [1, 1]
    first = text_of(store, [other, said, other]), candidates(3, 3, 3)
    second = text_of(store, [said, said, other]), candidates(3, 4, 3)
    text, (ids, valid) = first_answered([first, second], store)
    # row 0: only the second draw has an answer; row 1: the first has; row 2: none has
    assert text.targets[:, :3].tolist() == [said, said, [1, 1, 0]]
    assert ids[:, 1].tolist() == [3, 3, 3] and valid.all()


def test_excluded_and_null_candidates_answer_nothing(tiny):
    store, wrong = tiny.store, text_of(tiny.store, [[1, 1]])
    last = len(store) - 1  # NULL_PASSAGE as a position of an array
    for passage, found in ((3, candidates(3, valid=False)), (last, candidates(NULL_PASSAGE))):
        said = text_of(store, [store.body_ids(passage)[2:5].tolist()])
        text, _ = first_answered([(wrong, candidates(3)), (said, found)], store)
        assert text.targets[0, :2].tolist() == [1, 1]


@pytest.mark.parametrize(("positions", "answered"), [((1, 2, 5), True), ((1, 2, 3), False)])
def test_hidden_pieces_that_are_not_neighbours_may_be_apart_in_the_passage(
    tiny, positions, answered
):
    store = tiny.store
    body = store.body_ids(3).tolist()
    apart = text_of(store, [[body[0], body[1], body[5]]], positions)
    wrong = text_of(store, [[1]])
    text, _ = first_answered([(wrong, candidates(3)), (apart, candidates(3))], store)
    assert (text.targets[0, 0] == body[0]) == answered


def test_bytes_of_two_pieces_are_not_a_piece():
    one = [np.array([1], np.int32).tobytes()]
    assert _has_all(np.array([256, 1]), one) and not _has_all(np.array([256, 0]), one)


def test_a_batch_with_more_draws_has_more_answers_and_is_repeated(tmp_path):
    corpus = write_tiny_corpus(tmp_path, 24)
    share = {}
    for draws in (1, 6):
        config = tiny_config(corpus.folder, stages__realm__draws=draws, retrieval__candidates=3)
        run = RunDir(tmp_path / f"run{draws}")
        params = finished_run.random_params(config, corpus.store.vocabulary.size)
        finished_run.publish_random_index(run, corpus, config, params["embedder"], step=0)
        inputs = open_inputs(config)
        accepts = Knowledge(inputs.knowledge, config).accepts
        index = IndexManager(run, config, accepts, [], set)
        stage = RealmStage(config, inputs.knowledge, inputs.text, inputs.held_out, index)
        kept, packed = [], stage._packed
        stage._packed = lambda *given, k=kept, packed=packed: k.append(given[1:3]) or packed(*given)
        for step in (0, 1, 0):
            stage.batch(step)
        stage.close()
        jax.tree.map(np.testing.assert_array_equal, kept[0], kept[2])
        share[draws] = np.mean([_answers(corpus.store, *one) for one in kept[:2]])
    assert share[6] > share[1]


def _answers(store, text, chosen):
    """Share of the queries of which a candidate has the hidden words."""
    words = [
        text.targets[row, : int(weights.sum())].tolist() for row, weights in enumerate(text.weights)
    ]
    return np.mean(
        [
            any(
                _has(store.body_ids(passage).tolist(), hidden)
                for passage in ids[valid & (ids >= 0)].tolist()
            )
            for hidden, ids, valid in zip(words, *chosen, strict=True)
        ]
    )


def test_at_least_one_sentence_is_drawn(tiny):
    with pytest.raises(ConfigError, match="draws"):
        tiny_config(tiny.folder, stages__realm__draws=0)
