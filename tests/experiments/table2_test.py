"""The small Table 2 experiment: its rows, its corpora, and the run of a row."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import table2
from safetensors.numpy import load_file
from support import tiny_corpus
from support.table2_data import CITIES, COUNTRIES, documents, tiny_vocabulary, write_questions
from table2_small import aggregate, corpora, questions, run_row, tables
from table2_small.rows import COPYING, PAPER, READING, ROWS, in_order, row_config

from realm_jax import config as config_lib
from realm_jax.artifacts.run_config import newest_config
from realm_jax.corpus.documents import Document
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_store
from realm_jax.storage.layout import RunDir
from realm_jax.text.vocabulary import write_vocabulary
from realm_jax.trainer.checkpoint import final_params


def differences(name):
    base = table2.get_config()
    other = row_config(base, ROWS[name], base.seed, Path("home"))
    return {
        key: (value(base, key), value(other, key))
        for key in config_lib.keys(base)
        if value(base, key) != value(other, key)
    }


def value(config, key):
    for name in key.split("."):
        config = config[name]
    return config


NO_REALM = {"stages.realm.steps": (960, 1), "stages.realm.learning_rate": (3e-4, 0.0)}
CANDIDATES_16 = {
    "retrieval.candidates": (4, 16),
    "stages.realm.batch": (32, 8),
    "stages.realm.learning_rate": (3e-4, 1e-4),
    "stages.realm.evaluate_every": (60, 120),
    "refresh.every": (30, 60),
}
MORE = {"masking.rate": (0.0, 0.15), "lengths.masks": (3, 6)}
DIFFERENT = {
    "realm": {},
    "retriever_only": {"stages.qa.reader_from": ("", "home/ict_only_0")},
    "encoder_only": {**NO_REALM, "stages.qa.reader_from": ("", "home/realm_0")},
    "ict_only": NO_REALM,
    "random_token": {"masking.scheme": ("salient_span", "random_token")},
    "random_span": {"masking.scheme": ("salient_span", "random_span")},
    "stale_30x": {"refresh.every": (30, 900)},
    "ict_longer": {**NO_REALM, "stages.ict.steps": (200, 800)},
    "ict_longest": {**NO_REALM, "stages.ict.steps": (200, 3200)},
    "realm_after_longer": {"stages.ict.steps": (200, 800)},
    "news": {
        "corpus.pretraining": ("runs/table2/wikipedia", "home/news"),
        "corpus.spans": ("runs/table2/text_spans", "home/news_spans"),
    },
    "released_marginal": {"stages.realm.marginal": ("paper", "released")},
    "pdist": {"stages.realm.retriever_loss": ("marginal", "pdist")},
    "fresh_queries": {
        "retrieval.search_with": ("index", "fresh"),
        "search.kind": ("exact", "mesh"),
    },
    "rerank_64": {"retrieval.rerank": (0, 64)},
    "no_null": {"retrieval.null_passage": (True, False)},
    "candidates_8": {"retrieval.candidates": (4, 8)},
    "candidates_16": CANDIDATES_16,
    "random_token_16": {**CANDIDATES_16, "masking.scheme": ("salient_span", "random_token")},
    "random_span_16": {**CANDIDATES_16, "masking.scheme": ("salient_span", "random_span")},
    "random_token_more": {
        **CANDIDATES_16,
        **MORE,
        "masking.scheme": ("salient_span", "random_token"),
    },
    "random_span_more": {
        **CANDIDATES_16,
        **MORE,
        "masking.scheme": ("salient_span", "random_span"),
    },
    "ict_before_reading": {**NO_REALM, "stages.ict.steps": (200, 3200)},
    "realm_before_reading": {
        **CANDIDATES_16,
        "stages.ict.steps": (200, 3200),
        "stages.realm.steps": (960, 1920),
    },
    "realm_longer_before_reading": {
        **CANDIDATES_16,
        "stages.ict.steps": (200, 3200),
        "stages.realm.steps": (960, 3840),
    },
    "float32": {"model.compute": ("bfloat16", "float32")},
}


@pytest.mark.parametrize("name", ROWS)
def test_each_row_differs_from_realm_in_the_setting_it_names(name):
    assert differences(name) == DIFFERENT[name]
    config_lib.check(row_config(table2.get_config(), ROWS[name], 1, Path("home")))


@pytest.mark.parametrize("done", [set(), {(row, 0) for row in PAPER}, {("ict_only", 1)}])
def test_runs_that_create_shared_data_come_first(done):
    asked = [(row, seed) for seed in range(2) for row in PAPER if (row, seed) not in done]
    groups = in_order(asked, ROWS)
    runs = [run for group in groups for run in group]
    assert sorted(runs) == sorted(asked)
    assert len(groups[0]) == 1  # this run creates the corpora
    seeds_begun = set()
    for group in groups:
        seeds = [seed for _, seed in group]
        assert set(seeds) <= seeds_begun or len(set(seeds)) == len(seeds)
        seeds_begun |= set(seeds)
    mixed = [bool(ROWS[row].retriever_of) for group in groups for row, _ in group]
    assert mixed == sorted(mixed)
    assert in_order([], ROWS) == []


def test_all_rows_of_the_paper_are_included():
    assert set(PAPER) <= set(ROWS) and set(PAPER) == set(tables.PAPER_VALUES)
    assert set(tables.SETS) == {*questions.EVALUATED, "all"}


def test_knowledge_passages_are_article_beginnings_and_queries_the_rest(home):
    text, knowledge = (PassageStore.open(home / name) for name in ("wikipedia", "knowledge"))
    first = corpora.begins(text)
    assert len(knowledge) == first.sum() == len(COUNTRIES) < len(text)
    assert (knowledge.lengths() <= corpora.KNOWLEDGE_PIECES).all()
    spans = corpora.SpanStore.open(home / "text_spans", text)
    assert len(spans.rows) and not first[spans.rows].any()
    for row in spans.rows[:20].tolist():
        assert knowledge.title(int(spans.evidence[row])) == text.title(row)
        assert text.body(row) not in knowledge.body(int(spans.evidence[row]))
        for a, b in spans.of(row).tolist():
            assert set(text.title_ids(row).tolist()) & around(text, row, a, b)
    marked = corpora.SpanStore.open(home / "wikipedia" / corpora.TAGGED_SPANS, text)
    rest = np.flatnonzero(~first).tolist()
    assert sum(len(spans.of(row)) for row in rest) < sum(len(marked.of(row)) for row in rest)


def test_spans_to_copy_lie_in_the_shown_part_of_the_text(home):
    text = PassageStore.open(home / "wikipedia")
    marked, shown = (
        corpora.SpanStore.open(home / "wikipedia" / name, text)
        for name in (corpora.TAGGED_SPANS, corpora.SHOWN_SPANS)
    )
    assert sum(len(shown.of(row)) for row in range(len(text))) > 0
    for row in range(len(text)):
        ends = text.sentences(row)
        for a, b in marked.of(row).tolist():
            inside = ends[ends > a].min() <= corpora.SHOWN_PIECES
            assert ([a, b] in shown.of(row).tolist()) == inside
    assert (shown.source == np.arange(len(text))).all()


def test_news_masks_spans_that_a_named_passage_contains(tmp_path, home):
    stories = [
        Document("Trade", "Ora sold to City0. City0 sent it by ship.", "made up"),
        Document("Weather", "Ilo sank in 1502. By 1502 they met.", "made up"),
    ]
    write_store(tmp_path / "news", stories, home / "vocab.txt", passage_pieces=64)
    news = PassageStore.open(tmp_path / "news")
    marked = mark_spans(news, tmp_path / "marked")
    (tmp_path / "knowledge").symlink_to(home / "knowledge")
    corpora.tie_news(tmp_path, marked, news)
    tied = corpora.SpanStore.open(tmp_path / "news_spans", news)
    words = [
        [news.vocabulary.decode(news.body_ids(row)[a:b]) for a, b in tied.of(row).tolist()]
        for row in range(len(news))
    ]
    assert words == [["city0"], ["1502"]]


def around(text, row, start, stop):
    """Returns the tokens of a span's sentence without the span."""
    pieces, bounds = text.body_ids(row), text.sentences(row)
    begin, end = bounds[bounds <= start].max(), bounds[bounds > start].min()
    return {*pieces[begin:start].tolist(), *pieces[stop:end].tolist()}


def test_kept_questions_have_answers_in_few_passages(home, data):
    knowledge = PassageStore.open(home / "knowledge")
    passages = questions.AnsweringPassages(knowledge)
    for name in (questions.TRAIN, *questions.EVALUATED):
        for question in questions.read_kept(home, name):
            assert len(passages.few(question, 1)) == 1
    counts = json.loads((home / "questions" / "counts.json").read_text())
    # dropped: answer in all passages or in none, also in NQ dev, no name in the question
    assert counts["nq_train"] == {"read": 8, "not_in_dev": 7, "said": 5, "kept": 3}
    assert counts["nq_held_out"]["kept"] == 1
    assert counts["trec"] == {"read": 2, "not_in_dev": 2, "said": 1, "kept": 1}
    assert all(counts[name]["kept"] for name in questions.EVALUATED)
    assert {q.text for q in questions.read_kept(home, "nq_dev")} == {
        "What is twice in Ulm?",
        CITIES[5],
    }


@pytest.mark.slow
def test_a_row_is_run_only_once(home, stop):
    base, workdir = tiny_table2(home), home / "ict_only_0"
    found = run_row.make_row("ict_only", 0, workdir, base, stop)
    assert set(aggregate.METRICS) <= found.keys()
    assert 0 <= found["recall_at_5"] <= 1 and set(found["recall_of"]) == set(questions.EVALUATED)
    exact = found["exact_match_of"]
    assert set(exact) == set(questions.ANSWERED) and exact["nq_dev"] == found["exact_match"]
    assert min(exact.values()) <= found["exact_match_of_all"] <= max(exact.values())
    assert found["examples"]["sentences"] > 0 and found["seconds"].keys() == {"realm", "qa"}
    kept = workdir / "row.json"
    assert json.loads(kept.read_text()) == json.loads(json.dumps(found))
    kept.write_text("{}")
    assert run_row.make_row("ict_only", 0, workdir, base, stop) == {}  # it is not run again
    kept.unlink()
    again = run_row.make_row("ict_only", 0, workdir, base, stop)  # from existing checkpoints
    assert again["recall_of"] == found["recall_of"]
    assert again["retrieval_utility"] == found["retrieval_utility"]


@pytest.mark.slow
def test_a_mixed_row_combines_retriever_and_reader_of_two_rows(home, stop):
    base = tiny_table2(home)
    found = run_row.make_row("encoder_only", 0, home / "encoder_only_0", base, stop)
    others = {path.name for path in home.glob("*_0")}
    assert others == {"warm_reader_ict_2_0", "realm_0", "ict_only_0", "encoder_only_0"}
    of_ict = json.loads((home / "ict_only_0" / "row.json").read_text())
    assert found["recall_of"] == of_ict["recall_of"]
    assert found["retrieval_utility"] != of_ict["retrieval_utility"]
    assert "examples" not in found


@pytest.mark.slow
def test_an_embedder_starts_from_the_reader_of_the_named_row(home, stop):
    base = tiny_table2(home)
    for name in (READING, COPYING):
        folder = run_row.warm_ict(home, 0, 2, name, base, stop)
        started = newest_config(RunDir(folder)).model.start
        word = load_file(Path(started) / "model.safetensors")[
            "bert.embeddings.word_embeddings.weight"
        ]
        trained = final_params(RunDir(home / name), "reader")
        np.testing.assert_array_equal(word, trained[1]["reader"]["bert"]["word"])


@pytest.fixture
def stop():
    return threading.Event()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small question files with the published names and formats."""
    folder = tmp_path_factory.mktemp("data")
    write_questions(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory, data):
    """Corpora and questions from articles that are longer than one passage."""
    folder = tmp_path_factory.mktemp("home")
    write_vocabulary(folder / "vocab.txt", tiny_vocabulary())
    pieces = corpora.TEXT_PIECES
    write_store(folder / "wikipedia", documents(), folder / "vocab.txt", passage_pieces=pieces)
    text = PassageStore.open(folder / "wikipedia")
    marked = mark_spans(text, folder / "wikipedia" / "tagged_spans")
    corpora.cut_corpora(folder, marked, text, folder / "vocab.txt")
    questions.keep_questions(folder, data, PassageStore.open(folder / "knowledge"))
    return folder


def tiny_table2(home):
    """A tiny config of the row `realm` with the corpora in `home`."""
    base = tiny_corpus.tiny_config(home / "knowledge")
    base = config_lib.ConfigDict(base.to_dict())
    of_home = table2.get_config(str(home))
    base.corpus.update(of_home.corpus)
    for stage in ("ict", "reader", "realm", "qa"):
        base.stages[stage].steps = 2
    base.stages.reader.steps = 4  # one of them trains copying
    base.refresh.wait_seconds = 600.0
    return base
