"""`realm eval --format=beir`: measures, run files, intervals, and what is refused."""

import pytest
from support.finished_run import write_finished_run
from support.judged import COUNT, write_judged_set, write_judged_store
from support.tiny_corpus import tiny_config


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run that was not fine-tuned, over documents with ids."""
    folder = tmp_path_factory.mktemp("judged")
    corpus = write_judged_store(folder)
    write_finished_run(folder / "run", corpus, tiny_config(corpus.folder), tuned=False)
    return folder / "run"


@pytest.fixture
def questions(tmp_path):
    return write_judged_set(tmp_path / "set")


def test_measures_are_printed_and_compared_with_another_run(realm, workdir, questions, tmp_path):
    base = ("eval", f"--workdir={workdir}", "--format=beir", f"--questions={questions}")
    report = realm(*base, "--retriever=bm25", "--json").json()
    assert report["queries"] == COUNT
    assert report["ndcg_at_10"] > 0.9
    assert report.keys() == {
        "ndcg_at_10", "map", "mrr_at_10", "recall_at", "queries", "run_file"
    }  # fmt: skip
    assert report["run_file"] == str(workdir / "judged" / "set.bm25.trec")
    shown = realm(*base, f"--against={report['run_file']}", f"--run-file={tmp_path / 'x.trec'}")
    assert shown.code == 0
    name, value, difference = shown.out.splitlines()[0].split("\t")
    assert name == "nDCG@10"
    assert float(difference.split()[0]) == pytest.approx(
        float(value) - report["ndcg_at_10"], abs=2e-4
    )
    assert (tmp_path / "x.trec").exists()


def test_removed_documents_do_not_count_as_judged(realm, tmp_path, questions):
    corpus = write_judged_store(tmp_path)
    write_finished_run(tmp_path / "run", corpus, tiny_config(corpus.folder), tuned=False)
    judged = [line.split("\t")[1] for line in (questions / "qrels.tsv").read_text().splitlines()]
    removed = next(id for id in judged if id in set(corpus.store.document_ids))
    assert realm("corpus", "remove", f"--from={corpus.folder}", f"--ids={removed}").code == 0
    base = ("eval", f"--workdir={tmp_path / 'run'}", "--format=beir", f"--questions={questions}")
    realm(*base, "--retriever=bm25").refused("judged documents are not in the corpus", removed)
    assert realm(*base, "--retriever=bm25", "--skip-unknown", "--json").json()["ndcg_at_10"] > 0.9


def test_mistakes_are_refused_with_a_fix_that_works(realm, workdir, questions, finished):
    base = ("eval", f"--workdir={workdir}", "--format=beir", f"--questions={questions}")
    with (questions / "qrels.tsv").open("a") as file:
        file.write("q0\tnowhere\t1\n")
    realm(*base, "--retriever=bm25").refused("nowhere", "--skip-unknown")
    assert realm(*base, "--retriever=bm25", "--skip-unknown", "--json").json()["recall_at"]["5"] > 0
    other = ("eval", f"--workdir={finished.workdir}", *base[2:], "--skip-unknown")
    realm(*other).refused("no document ids", "realm corpus build --format=beir")
    realm(*base, "--part=test").refused("qrels/test.tsv")
    realm(*base, "--against=none.trec").refused("not a TREC run file")
    realm(*base, "--predictions=x").refused("--run-file", code=2)
    plain = ("eval", f"--workdir={workdir}", "--questions=x.jsonl")
    realm(*plain, "--against=y").refused("--format=beir", code=2)
    realm(*plain, "--dense-weight=2").refused("0 to 1", code=2)
