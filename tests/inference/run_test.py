"""A run in Python: `realm_jax.open`, its vectors, and its answers."""

import json
import re
from inspect import unwrap
from pathlib import Path

import numpy as np
import pytest
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

import realm_jax as realm
from realm_jax import config as config_lib
from realm_jax.errors import InputError
from realm_jax.inference.fill_mask import MaskFiller
from realm_jax.inference.run import Run
from realm_jax.retrieval.bm25 import Bm25

QUESTION, MASK = "what is the Café?", "the river in [MASK]."


@pytest.fixture(scope="module")
def run(answerer):
    return Run(answerer)


@pytest.fixture(scope="module")
def filler_of(tmp_path_factory, accents):
    """A run without fine-tuning."""
    workdir = tmp_path_factory.mktemp("untuned") / "run"
    write_finished_run(workdir, accents, tiny_config(accents.folder), tuned=False)
    return realm.open(str(workdir))


@pytest.mark.parametrize("blank", ["[MASK]", "<mask>"])
def test_a_blank_is_no_word(filler_of, monkeypatch, blank):
    asked, search = [], Bm25.search
    monkeypatch.setattr(
        Bm25, "search", lambda self, texts, k: asked.append(texts) or search(self, texts, k)
    )
    filler_of.retrieve(f"the river in {blank}.", 2, retriever="hybrid")
    assert asked == [["the river in  ."]]


def test_many_texts_are_searched_in_parts_with_the_same_hits(run, monkeypatch):
    texts = [QUESTION, MASK, "the tower of Ulm", QUESTION, "Ora"]
    for retriever in ("dense", "bm25", "hybrid"):
        whole = run.retrieve(texts, 3, retriever=retriever)
        with monkeypatch.context() as fewer:
            fewer.setattr("realm_jax.inference.run.MAX_QUERIES", 2)
            parts = run.retrieve(texts, 3, retriever=retriever)
        assert [[hit.id for hit in one] for one in parts] == [
            [hit.id for hit in one] for one in whole
        ]


def test_a_run_is_opened_with_the_paths_of_its_inputs_and_no_other_keys(answerer, accents):
    run = realm.open(answerer.run.workdir, {"corpus.knowledge": Path(accents.folder)})
    assert run.config.corpus.knowledge == str(accents.folder)
    for key in ("corpus.knowlege", "model.hidden"):
        with pytest.raises(
            InputError, match=r"config key.*\n.*paths\n.*corpus\.knowledge.*\n.*" + key
        ):
            realm.open(answerer.run.workdir, {key: "x"})


def test_open_returns_a_run_with_a_description(filler_of, run, accents):
    assert isinstance(filler_of, realm.Run)
    assert re.search(f"{len(accents.store)} passages, fills blanks", repr(filler_of))
    assert "answers questions" in repr(run)
    assert len(run) == len(accents.store)
    assert run.passage(2) == ("Menu", "The CAFÉ was open since 1900.")


def test_answers_equal_those_of_the_answerer(run, answerer):
    assert run.ask(QUESTION, 3) == answerer.ask(QUESTION, 3)
    assert run.fill(MASK) == MaskFiller(answerer).fill(MASK)
    questions = [f"what is {number}?" for number in range(3)]
    together = run.ask_all(questions, 2)
    assert [answer.question for answer in together] == questions
    assert together[2].answer == run.ask(questions[2], 2).answer
    assert run.ask_all([]) == []


def test_retrieved_passages_are_the_ones_that_are_read(run, answerer):
    read = run.ask(QUESTION, 3).passages
    found = run.retrieve(QUESTION, 3)
    assert [hit.id for hit in found] == [passage.id for passage in read]
    assert [(hit.title, hit.text) for hit in found] == [(p.title, p.text) for p in read]
    scores = np.array([hit.score for hit in found])
    assert (np.diff(scores) <= 0).all()
    p_z = np.exp(scores - scores.max())
    np.testing.assert_allclose(p_z / p_z.sum(), [p.p_z for p in read], rtol=1e-4)
    of_two = run.retrieve([QUESTION, "?"], 3)
    assert [hit.id for hit in of_two[0]] == [hit.id for hit in found]
    assert len(run.retrieve(QUESTION, 99)) == len(run)
    assert run.retrieve([]) == []


def test_a_masked_sentence_retrieves_a_passage_with_its_answer(run):
    found = [hit.id for hit in run.retrieve(MASK, run.config.retrieval.candidates)]
    used = [p.id for p in run.fill(MASK, "ora").passages if p.id >= 0]
    assert set(found[: len(used)]) == set(used)  # the scores of an untrained run are nearly equal


def test_questions_and_masked_sentences_have_different_embedders(run, filler_of):
    mixed = run.encode_query([QUESTION, MASK, "?"])
    assert mixed.dtype == np.float32
    assert mixed.shape == (3, run.get_sentence_embedding_dimension())
    for text, vector in zip([QUESTION, MASK, "?"], mixed, strict=True):
        np.testing.assert_allclose(run.embed(text), vector, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(filler_of.embed(MASK), mixed[1], rtol=1e-4, atol=1e-5)
    assert np.abs(filler_of.embed(QUESTION) - mixed[0]).max() > 1e-2
    assert run.encode_query([]).shape == (0, 8)


def test_an_embedded_passage_has_its_vector_in_the_index(run, accents):
    pairs = [(accents.store.title(i), accents.store.body(i)) for i in range(len(run))]
    titles, bodies = map(list, zip(*pairs, strict=True))
    vectors = run.encode_document(bodies, titles)
    indexed = run._index.vectors_of(np.arange(len(run)))
    np.testing.assert_allclose(vectors, indexed, atol=2e-3, rtol=2e-3)
    one = run.encode_document(bodies[3], titles[3])
    np.testing.assert_allclose(one, vectors[3], rtol=1e-4, atol=1e-5)
    found = run.retrieve(QUESTION, len(run))
    scores = run.similarity(run.encode_query(QUESTION), vectors)[0]
    np.testing.assert_allclose([hit.score for hit in found], scores[[h.id for h in found]], 1e-2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: run.ask(""), "empty"),
        (lambda run: run.ask("why " * 100), "too long"),
        (lambda run: run.ask(MASK), r"run\.fill"),
        (lambda run: run.ask_all(["?", "a " * 50]), "too long"),
        (lambda run: run.fill("no blank"), r"one \[MASK\]"),
        (lambda run: run.retrieve("?", 0), "at least 1"),
        (lambda run: run.ask("?", k=0), "at least 1"),
        (lambda run: run.ask("?", k=-1), "at least 1"),
        (lambda run: run.retrieve(["?", " "]), "empty"),
        (lambda run: run.retrieve("a \ud83d b", retriever="bm25"), "not Unicode"),
        (lambda run: run.encode_document("\udce9"), "not Unicode"),
        (lambda run: run.embed("a " * 50), "too long to be a query"),
        (lambda run: run.encode_document("a " * 50), "the passage is too long"),
        (lambda run: run.encode_document(["a", "b"], ["c"]), "2 titles"),
        (lambda run: run.passage(6), "0 to 5"),
    ],
)
def test_invalid_calls_are_refused_with_the_reason(run, call, words):
    with pytest.raises(InputError, match=words):
        call(run)


@pytest.mark.parametrize(
    ("call", "where", "found"),
    [
        (lambda run: unwrap(Run.ask)(run, ["who?"]), "question", "list ['who?']"),
        (lambda run: unwrap(Run.ask_all)(run, ["who?", 3]), "questions", "int 3"),
        (lambda run: unwrap(Run.fill)(run, 3), "text", "int 3"),
        (lambda run: unwrap(Run.fill)(run, [MASK]), "text", "list ['the river"),
        (lambda run: unwrap(Run.fill)(run, MASK, 1850), "answer", "int 1850"),
        (lambda run: unwrap(Run.encode_query)(run, 5), "texts", "int 5"),
        (lambda run: unwrap(Run.encode_document)(run, ["a"], [3]), "titles", "int 3"),
        (lambda run: unwrap(Run.retrieve)(run, {"q1": "who?"}), "texts", "dict {'q1'"),
        (lambda run: unwrap(Run.encode_query)(run, {"who?"}), "texts", "set {'who?'}"),
    ],
)
def test_an_argument_that_is_not_a_string_is_refused_by_name(run, call, where, found):
    """`unwrap` removes the type checks of the tests, which users do not have."""
    with pytest.raises(InputError, match="not a text") as refused:
        call(run)
    assert refused.value.where == where
    assert refused.value.found.startswith(found)


@pytest.mark.parametrize(
    ("call", "where", "found"),
    [
        (lambda run: unwrap(Run.retrieve)(run, "who?", None), "k", "NoneType None"),
        (lambda run: unwrap(Run.retrieve)(run, "who?", 2.5), "k", "float 2.5"),
        (lambda run: unwrap(Run.ask_all)(run, ["who?"], "3"), "k", "str '3'"),
        (lambda run: unwrap(Run.passage)(run, 1.0), "passage", "float 1.0"),
    ],
)
def test_a_count_that_is_no_whole_number_is_refused_by_name(run, call, where, found):
    with pytest.raises(InputError, match="not a whole number") as refused:
        call(run)
    assert (refused.value.where, refused.value.found) == (where, found)


def test_a_run_without_fine_tuning_retrieves_but_refuses_questions(filler_of):
    assert len(filler_of.retrieve(QUESTION, 2)) == 2
    with pytest.raises(InputError, match="not fine-tuned"):
        filler_of.ask(QUESTION)


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    def refused(path):
        with pytest.raises(InputError, match="no trained networks to answer with") as error:
            realm.open(str(path))
        return error.value

    assert f"--workdir={tmp_path} --config=" in refused(tmp_path).fix
    (tmp_path / "config.json").write_text(config_lib.to_json(tiny_config(stages__realm__steps=1)))
    assert refused(tmp_path).fix == f"finish it: realm run --workdir={tmp_path}"
    file = refused(tmp_path / "config.json")
    assert (file.found, "realm run" in file.fix) == ("a file", False)


def test_answers_have_an_html_form_with_escaped_passages(run, answerer):
    answer = run.ask(QUESTION, 3)
    assert str(answer).startswith(answer.headline)
    assert f">>{answer.answer}<<".casefold() in str(answer).casefold()
    html = answer._repr_html_()
    assert f"<mark>{answer.answer}</mark>".casefold() in html.casefold()
    assert html.count("<tr>") == 3
    forged = json.loads(json.dumps(answer.as_dict()))["passages"][0] | {"title": "<script>"}
    hostile = type(answer)("?", "<b>", 0.5, 1, [type(answer.passages[0])(**forged)])
    assert "<script>" not in hostile._repr_html_() and "<b><b>" not in hostile._repr_html_()
