"""Table 2 from an encoder: its rows, corpora, questions and figures, and the run of a row."""

import json
import lzma
import sys
import threading
from pathlib import Path

import evidence
import numpy as np
import pytest
import table2
from evidence_runs import row_tables, rows
from evidence_runs.aggregate import RESAMPLES
from support import table2_data
from support.table2_data import CITIES, COUNTRIES, documents, write_articles, write_data
from support.tiny_encoder import LIKE_MINILM, write_tiny_encoder
from table2_small import all_questions, corpora, encyclopedia, run_from_start
from table2_small.bits import bits, from_bits
from table2_small.questions import QuestionRule, kept_file, read_kept, read_source
from table2_small.rows import ROWS_FROM_START, row_config

import realm_jax
from realm_jax import config as config_lib
from realm_jax.cli.scripts import exit_with
from realm_jax.corpus.mark_spans import mark_spans
from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.corpus.store_writer import write_passages, write_store
from realm_jax.retrieval.bm25 import Bm25
from realm_jax.tagging.tagger import Tagger
from realm_jax.text.vocabulary import write_vocabulary

NO_REALM = {"stages.realm.steps": 1, "stages.realm.learning_rate": 0.0}
BM25 = {"stages.qa.retriever": "bm25", "stages.qa.retriever_passages": 5}
NAMES = {"corpus.spans": "home/name_spans"}
DRAWN = {**NAMES, "stages.realm.draws": 8}
CHANGED = {
    "realm": DRAWN,
    "retriever_only": {"stages.qa.reader_from": "home/ict_only_0"},
    "encoder_only": {"stages.qa.reader_from": "home/realm_0"},
    "ict_only": {**NO_REALM, "stages.ict.steps": 300},
    "random_token": {**DRAWN, "masking.scheme": "random_token"},
    "random_span": {**DRAWN, "masking.scheme": "random_span"},
    "stale_30x": {**DRAWN, "refresh.every": 30 * 100},
    "bm25": {"stages.qa.reader_from": "home/start_0", **BM25},
    "start": NO_REALM,
    "all_names": NAMES,
    "stated_names": {},
    "stated_names_stale": {"refresh.every": 30 * 100},
    "stated_random_span": {"masking.scheme": "random_span"},
}


def changes(base, other):
    keys = config_lib.keys(base)
    was, now = ({key: config_lib.value_of(one, key) for key in keys} for one in (base, other))
    return {key: value for key, value in now.items() if value != was[key]}


def test_each_row_changes_only_what_it_names():
    base = table2.get_config_from_start()
    for name, row in ROWS_FROM_START.items():
        assert changes(base, row_config(base, row, base.seed, Path("home"))) == CHANGED[name]
    # BM25 alone decides what is read: as many passages are retrieved as the reader reads
    assert BM25["stages.qa.retriever_passages"] == base.stages.qa.reader_passages
    retrievers = {name: row.retriever_of for name, row in ROWS_FROM_START.items()}
    assert {name: of for name, of in retrievers.items() if of} == {
        "retriever_only": "realm",
        "encoder_only": "ict_only",
        "bm25": "start",
    }


def test_answers_come_from_the_whole_encyclopedia_without_further_pre_training(tmp_path):
    config = table2.get_config_from_start(str(tmp_path))
    config.stages.qa.retriever = "bm25"
    # the form of the encoder, which `table2.base_config` reads from its folder
    config.model.update(projection="none", embedding=config.model.hidden)
    answers = run_from_start.answers_config(config, tmp_path, tmp_path / "W")
    assert answers.corpus.knowledge == str(tmp_path / "encyclopedia")
    steps = {name: stage.steps for name, stage in answers.stages.items() if stage.steps}
    assert set(steps) == {"qa", "tagger"} and answers.stages.realm.publish_start
    assert answers.lengths.passage < answers.lengths.joint - 20
    assert answers.stages.qa.retriever == "bm25"


def test_the_config_has_the_sizes_of_the_encoder_except_given_keys(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt", table2_data.tiny_vocabulary())
    form = {**LIKE_MINILM, "positions": 96}
    start = write_tiny_encoder(tmp_path / "start", tmp_path / "vocab.txt", form)
    base = table2.base_config(tmp_path, str(start), ["--config.model.layers=1"])
    assert (base.model.hidden, base.model.layers, base.model.pooling) == (16, 1, "mean")
    assert base.model.start == str(start)
    config_lib.check(base)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """X, with the vocabulary in the parent folder."""
    folder = tmp_path_factory.mktemp("text")
    write_vocabulary(folder / "vocab.txt", table2_data.tiny_vocabulary())
    write_store(folder / "wikipedia", documents(), folder / "vocab.txt", passage_pieces=64)
    return PassageStore.open(folder / "wikipedia")


def test_knowledge_is_the_beginning_of_the_longest_quarter(tmp_path, text):
    write_articles(tmp_path / "articles.xz")
    vocabulary = text.path.parent / "vocab.txt"
    found = list(encyclopedia.beginnings(tmp_path / "articles.xz", vocabulary, 0.25, 64))
    assert [title for title, _ in found] == [f"{country} (country)" for country in COUNTRIES]
    write_passages(tmp_path / "knowledge", found, vocabulary)
    store = PassageStore.open(tmp_path / "knowledge")
    lengths = store.lengths()
    assert (lengths <= 64).all()
    sentence = len(store.body_ids(0)) // len(found[0][1])
    assert (lengths + sentence > 64).all()  # as many sentences as fit
    every = list(encyclopedia.beginnings(tmp_path / "articles.xz", vocabulary, 1.0, 96))
    assert len(every) == 4 * len(COUNTRIES) and len(every[0][1]) > len(found[0][1])


def test_a_first_sentence_that_does_not_fit_is_cut(tmp_path, text):
    words = text.vocabulary
    (kept,) = encyclopedia._beginning("Ora", "river " * 100 + "end.", words, 64)
    assert encyclopedia._beginning("Ora", " ", words, 64) == []
    assert len(words.pieces([kept])[0][0]) == 64 - 3 - len(words.pieces(["Ora"])[0][0])


def test_a_span_is_kept_if_a_passage_that_its_sentence_names_states_it(tmp_path, text):
    vocabulary = text.path.parent / "vocab.txt"
    known = [
        ("Ora (country)", ["The capital of Ora is City0."]),
        ("Ube", ["The capital of Ube is City0. The Ilo was in 1502."]),
        ("River", ["City1 in 1501."]),
    ]
    stories = [
        ("Any", ["Ora was City0 in 1500.", "Ube and City0."]),  # two state it; the first is kept
        ("Any", ["What is City0.", "Oral City0."]),  # no title
        ("Any", ["Ube was in 1502 and the City1."]),  # another passage states City1
        ("Any", ["The river since 1501."]),
        ("Any", ["Ube in 1502 and 1502."]),  # the sentence repeats it
    ]
    write_passages(tmp_path / "z", known, vocabulary)
    write_passages(tmp_path / "x", stories, vocabulary)
    knowledge, x = (PassageStore.open(tmp_path / name) for name in "zx")
    encyclopedia.write_stated(tmp_path / "s", mark_spans(x, tmp_path / "m"), x, knowledge)
    made = SpanStore.open(tmp_path / "s", x)
    spans = [
        [x.vocabulary.decode(x.body_ids(row)[a:b]) for a, b in made.of(row).tolist()]
        for row in range(len(x))
    ]
    assert spans == [["city0"], [], ["1502"], ["1501"], []]
    assert made.evidence.tolist() == [0, -1, 1, 2, -1]


@pytest.mark.parametrize(("most", "count"), [(3, 3), (None, len(COUNTRIES))])
def test_the_text_is_the_first_articles_of_the_sample(tmp_path, most, count):
    write_data(tmp_path, "")
    sample = tmp_path / corpora.SAMPLE
    made = corpora.built_and_marked(tmp_path / "X", "wikiextractor", sample, mark_spans, most)
    titles_of_rows = [made.title(row) for row in range(len(made))]
    assert list(dict.fromkeys(titles_of_rows)) == list(COUNTRIES[:count])


def test_every_question_is_judged_and_none_of_them_trained_on(tmp_path, text):
    write_data(tmp_path, "")
    vocabulary = text.path.parent / "vocab.txt"
    leads = encyclopedia.beginnings(tmp_path / encyclopedia.ARTICLES, vocabulary, 0.25, 64)
    write_passages(tmp_path / "knowledge", leads, vocabulary)
    store = PassageStore.open(tmp_path / "knowledge")
    all_questions.keep_all_questions(tmp_path, tmp_path, store)
    counts = json.loads((tmp_path / "questions" / "counts.json").read_text())
    judged = {name: read_kept(tmp_path, name) for name in all_questions.JUDGED}
    assert {name: len(questions) for name, questions in judged.items()} == {
        name: counts[name]["read"] for name in judged
    }
    assert judged["triviaqa_dev"][0].answers == ("City3", "city 3")
    assert judged["trec"][1].expression and judged["trec"][1].answers == ("zebra|lion",)
    trained = {q.text for q in read_kept(tmp_path, all_questions.TRAIN)}
    # CITIES[1] is in CuratedTREC and CITIES[3] in TriviaQA; CITIES[2] is in NQ and in SQuAD
    assert trained == {CITIES[0], CITIES[2]}
    assert counts["nq_train"]["kept"] == 2
    assert counts["squad"] == {"read": 1, "not_judged": 1, "kept": 1}
    rule, questions = QuestionRule(store), read_source(tmp_path, "nq_train")
    assert rule.kept(questions) == rule.said_and_kept(questions)[1] != questions


def test_bits_of_questions_come_back():
    values = np.random.default_rng(0).random(8757) < 0.3
    text = bits(values.tolist())
    assert text.startswith("8757:") and len(text) < 2300
    np.testing.assert_array_equal(from_bits(text), values)


def write_record(folder, row, seed, right):
    values = {name: bits(right) for name in all_questions.JUDGED}
    values["trec"] = bits([True, False])
    record = {"row": row, "seed": seed, "retrieval_utility": 0.5 + seed}
    record |= {"curve": [[60, 0.25], [120, 0.5 + seed]], "command_seconds": 90.0}
    record["device"] = "chip"
    record["by_question"] = {"recall_at_5": values, "exact_match": values}
    (folder / f"{row}_{seed}.json").write_text(json.dumps(record))


def test_figures_are_means_over_seeds_with_a_bootstrap_over_questions(tmp_path):
    few, many = [True] * 100 + [False] * 300, [True] * 200 + [False] * 200
    write_record(tmp_path, "realm", 0, few)
    write_record(tmp_path, "realm", 1, many)
    write_record(tmp_path, "ict_only", 1, few)
    made = rows.aggregate_rows(tmp_path)
    assert list(made["rows"]) == ["realm", "ict_only"]
    recall = made["rows"]["realm"]["recall_at_5"]["nq_dev"]
    assert recall["mean"] == 0.375 and recall["seeds"] == [0.25, 0.5]
    # drawn one by one, as the multinomial draws them at once
    values, random = np.mean([few, many], axis=0), np.random.default_rng(1)
    means = values[random.integers(400, size=(RESAMPLES, 400))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    assert (recall["low"], recall["high"]) == (
        pytest.approx(low, abs=0.003),
        pytest.approx(high, abs=0.003),
    )
    assert made["rows"]["realm"]["retrieval_utility"]["mean"] == 1.0
    # only seed 1 has both rows
    gain = made["row_differences"]["realm_over_ict_only"]["exact_match"]["nq_dev"]
    assert gain["mean"] == 0.25 and gain["low"] < 0.25 < gain["high"]
    assert made["row_training"]["realm"]["utility"] == [[60, 0.25], [120, 1.0]]
    shown = row_tables.row_tables({**made, "collections": {}})
    assert "| `realm` | 37.5 (" in shown["rows_recall"] and "| `start` | – |" in shown["rows_exact"]
    assert "60: 0.25, 120: 1.00 | 2, 2 | chip |" in shown["rows_utility"]
    assert set(row_tables.CLAIMS.values()) == set(rows.PAIRS)
    # CuratedTREC is the same in both rows; no row was run for the last claim
    assert "ICT's | **Yes**: better on 3, worse on 0 of 4 sets |" in shown["verdicts"]
    assert "| REALM beats BM25 | – | – |" in shown["verdicts"]
    assert "from 0.25 to 1.00 nats" in shown["verdicts"]
    swapped = {name: {"low": -0.2, "high": -0.1} for name in "ab"} | {"c": {"low": 0, "high": 1}}
    assert row_tables._verdict(swapped) == "**No**: better on 0, worse on 2 of 3 sets"
    one_set = {"a": {"low": 0.1, "high": 0.2}, "b": {"low": 0, "high": 1}}
    assert row_tables._verdict(one_set) == "**Not shown**: better on 1, worse on 0 of 2 sets"
    assert "| ICT | – | 25.0 | 25.0 | 25.0 | 25.0 |" in shown["summary"]
    assert "| the encoder and BM25 | – | – |" in shown["summary"]
    one, other = {"start": {"ndcg_at_10": {"mean": 0.5}}}, {"start": {"ndcg_at_10": {"mean": 0.7}}}
    two = {"a": one | {"ict": {"ndcg_at_10": {"mean": 0.9}}}, "b": other}
    partly = row_tables._summary_table({**made, "collections": two})
    assert "mean of 2 collections" in partly and "| the encoder as it comes | 0.600 |" in partly
    assert "| ICT | – |" in partly


def test_untrained_retrievers_have_figures_and_fill_the_summary(tmp_path):
    none = {**rows.aggregate_rows(tmp_path), "collections": {}}
    assert "| `bm25` | – | – | – | – |" in row_tables.row_tables(none)["untrained"]
    found = {"start": [True, False], "start_hybrid": [True, True], "bm25": [False, False]}
    found["start_reciprocal_ranks"] = [True, False]
    sets = all_questions.JUDGED
    by_question = {kind: {name: bits(own) for name in sets} for kind, own in found.items()}
    (tmp_path / rows.UNTRAINED).write_text(json.dumps({"by_question": by_question}))
    made = rows.aggregate_rows(tmp_path)
    assert made["untrained"]["start"]["trec"] == {"mean": 0.5, "low": 0.0, "high": 1.0}
    gain = made["untrained_differences"]["start_hybrid_over_start"]["nq_dev"]
    assert gain == {"mean": 0.5, "low": 0.0, "high": 1.0}
    shown = row_tables.row_tables({**made, "collections": {}})
    assert "| `bm25` | 0.0 (0.0 to 0.0) |" in shown["untrained"]
    assert "| `start_hybrid` − `start` | +50.0 (+0.0 to +100.0) |" in shown["untrained"]
    assert "| the encoder and BM25 | – | 100.0 | 100.0 | – | – |" in shown["summary"]
    assert "| REALM | – | – | – | – | – |" in shown["summary"]


def test_the_contract_names_all_rows_and_sets():
    assert list(row_tables.SETS) == ["nq_dev", "triviaqa_dev", "webquestions", "trec"]
    assert list(row_tables.SETS) == list(all_questions.JUDGED)
    assert set(ROWS_FROM_START) == set(CHANGED)
    assert evidence.ROWS == table2.RUNS_FROM_START


@pytest.mark.slow
def test_the_text_is_marked_by_a_tagger_that_starts_from_the_encoder(tmp_path, text):
    lines = "Ora B-LOC\nis O\nold O\n\nUbe B-LOC\nis O\nnew O\n"
    (tmp_path / corpora.TAGGED).write_bytes(lzma.compress(lines.encode()))
    write_vocabulary(tmp_path / corpora.VOCABULARY, table2_data.tiny_vocabulary())
    form = {**LIKE_MINILM, "positions": 160}
    start = write_tiny_encoder(tmp_path / "start", tmp_path / corpora.VOCABULARY, form)
    steps = ["--config.stages.tagger.steps=2", "--config.stages.tagger.batch=8"]
    base = table2.base_config(tmp_path, str(start), steps)
    out = tmp_path / "spans"
    run_from_start.mark_text("", tmp_path, tmp_path, base, threading.Event(), text, out)
    tagger, published = Tagger.open(str(tmp_path / "tagger"))
    kept = config_lib.from_json(published.config_json, "tagger")
    assert (kept.model.start, kept.model.hidden) == (str(start), 16)
    assert tagger.types == base.model.entities and len(SpanStore.open(out, text)) == len(text)


@pytest.mark.slow
def test_rows_of_a_tiny_encoder_get_records(tmp_path, monkeypatch):
    data, home, records = tmp_path / "data", tmp_path / "runs", tmp_path / "records"
    data.mkdir()
    write_data(data, "")
    form = {**LIKE_MINILM, "positions": 160}
    start = write_tiny_encoder(tmp_path / "start", data / "bert-base-uncased-vocab.txt", form)
    few = [f"stages.{stage}.batch=8" for stage in ("reader", "ict", "realm", "qa")]
    few += [f"stages.{stage}.steps=4" for stage in ("reader", "realm", "qa")]
    few += ["stages.realm.evaluate_every=2", "refresh.every=2", "model.compute=float32"]
    flags = [f"--config.{one}" for one in few]
    flags += [f"--data={data}", f"--home={home}", f"--start={start}", f"--records={records}"]
    flags += ["--tagger=rules"]

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["table2.py", *more, *flags])
        with pytest.raises(SystemExit) as ended:
            exit_with(table2.main)
        assert not ended.value.code, ended.value.code

    run("--warm")
    assert {path.name for path in records.iterdir()} == {
        "counts.json",
        "warm_copying.jsonl",
        "warm_reader.jsonl",
    }
    text = PassageStore.open(home / "wikipedia")
    stated, every = (SpanStore.open(home / name, text) for name in ("text_spans", "name_spans"))
    assert stated.manifest["spans"] < every.manifest["spans"] and (every.evidence == -1).all()
    run("--row=bm25")
    run("--row=realm")
    run("--row=all_names")
    run("--untrained")
    record = json.loads((records / "bm25_0.json").read_text())
    store = PassageStore.open(home / "encyclopedia")
    questions = read_kept(home, "nq_dev")
    best, _ = Bm25.open(store).search([q.text for q in questions], 5)
    said = [
        any(q.answers[0] in store.body(i) for i in found.tolist())
        for q, found in zip(questions, best, strict=True)
    ]
    assert from_bits(record["by_question"]["recall_at_5"]["nq_dev"]).tolist() == said
    untrained = json.loads((records / rows.UNTRAINED).read_text())["by_question"]
    assert from_bits(untrained["bm25"]["nq_dev"]).tolist() == said
    assert tuple(untrained) == rows.UNTRAINED_SYSTEMS
    assert not (home / "bm25_0" / "checkpoints").exists()  # it uses the run of `start`
    realm = json.loads((records / "realm_0.json").read_text())
    assert [step for step, _ in realm["curve"]] == [2, 4] and "examples" in realm
    assert realm["seconds"].keys() == {"realm", "qa"} and realm["command_seconds"] > 0
    trained = (home / "realm_0" / "logs" / "realm.jsonl").read_text().splitlines()[-1]
    assert realm["seconds"]["realm"] == json.loads(trained)["seconds"]
    assert realm["own_recall_at_5"] >= 0
    made = rows.aggregate_rows(records)
    assert list(made["rows"]) == ["realm", "bm25", "all_names"]
    answerer = realm_jax.open(str(home / "realm_0" / "answers"))
    assert answerer.ask(CITIES[0]).passages
    kept_file(home, "nq_dev").unlink()  # finished rows are not measured again
    run("--row=realm")
