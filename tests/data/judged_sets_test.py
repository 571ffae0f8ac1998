"""Judged sets in the form of BEIR, and TREC run files: what is read, and what is refused."""

import gzip
import json

import pytest
from etils import epath

from realm_jax.data.judged_sets import read_judged_set
from realm_jax.data.trec_runs import check_run_file, read_run, write_run
from realm_jax.errors import InputError

QUERIES = [
    {"_id": "q1", "text": "one"},
    {"_id": 2, "text": "two", "more": 0},
    {"_id": "q3", "text": "3"},
]
HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "set"
    (path / "qrels").mkdir(parents=True)
    lines = "\n".join(json.dumps(query) for query in QUERIES)
    (path / "queries.jsonl").write_text(lines + "\n")
    return path


def test_queries_with_a_relevant_document_are_read_with_their_grades(folder):
    (folder / "qrels.tsv").write_text(
        f"{HEADER}q1\td 1\t2\nq1\td2\t-1\n2\td1\t0\n2\td3\t1\nq3\td1\t0\n"
    )
    judged = read_judged_set(folder)
    assert judged.name == "set"
    assert judged.queries == {"q1": "one", "2": "two"}
    assert judged.qrels == {"q1": {"d 1": 2, "d2": 0}, "2": {"d1": 0, "d3": 1}}
    assert list(judged.first(1).qrels) == list(judged.first(1).queries) == ["q1"]


def test_a_byte_order_mark_is_no_part_of_the_first_id(folder):
    (folder / "qrels.tsv").write_text("q1\td1\t2\n", encoding="utf-8-sig")
    assert read_judged_set(folder).qrels == {"q1": {"d1": 2}}


def test_a_part_is_one_file_of_the_folder_and_all_are_all_files(folder):
    (folder / "qrels" / "dev.tsv").write_text("q1\td1\t1\n")
    (folder / "qrels" / "test.tsv").write_text(HEADER + "2\td1\t1\n")
    assert list(read_judged_set(folder, "test").queries) == ["2"]
    assert list(read_judged_set(folder).queries) == ["q1", "2"]
    with pytest.raises(InputError, match=r"qrels/train\.tsv") as error:
        read_judged_set(folder, "train")
    assert error.value.found == "dev.tsv, test.tsv"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("qrels.tsv", "q9\td1\t1\n", ["qrels.tsv:1", "q9"]),
        ("qrels.tsv", f"{HEADER}q1 d1 1\n", ["qrels.tsv:2", "tabs"]),
        ("qrels.tsv", f"{HEADER}q1\td1\tyes\n", ["qrels.tsv:2", "whole number"]),
        ("qrels.tsv", f"{HEADER}q1\td1\t--5\n", ["qrels.tsv:2", "whole number"]),
        ("qrels.tsv", f"{HEADER}q1\td1\t{'9' * 5000}\n", ["qrels.tsv:2", "whole number"]),
        ("qrels.tsv", "q1\td1\t0\n", ["no query has a relevant document"]),
        ("qrels.tsv", b"q1\t\xff\t1\n", ["UTF-8"]),
        ("queries.jsonl", '{"_id": "q1"}\n', ["queries.jsonl:1", "_id"]),
        ("queries.jsonl", '{"_id": "", "text": "x"}\n', ["queries.jsonl:1", "not empty"]),
        ("queries.jsonl", "[" * 100_000, ["queries.jsonl:1"]),
        ("queries.jsonl", '{"_id": "q1", "text": "\\ud83d"}\n', ["queries.jsonl:1", "surrogate"]),
    ],
)
def test_malformed_files_are_refused_with_their_line(folder, name, content, words):
    (folder / "qrels.tsv").write_text("q1\td1\t1\n")
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        read_judged_set(folder)
    for word in words:
        assert word in str(error.value)


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(InputError, match=r"qrels\.tsv or qrels/\*\.tsv"):
        read_judged_set(folder)
    with pytest.raises(InputError, match=r"queries\.jsonl"):
        read_judged_set(tmp_path)


def test_unknown_documents_are_refused_or_left_out(folder, caplog):
    (folder / "qrels.tsv").write_text("q1\td1\t1\nq1\td2\t1\n2\td3\t1\n")
    judged = read_judged_set(folder)
    judged.check_documents({"d1", "d2", "d3", "d4"})
    with pytest.raises(InputError, match="1 of 3 unknown: d3"):
        judged.check_documents({"d1", "d2", ""})
    with pytest.raises(InputError, match="the corpus has no document ids"):
        judged.check_documents({""})
    with caplog.at_level("INFO"):
        kept = judged.without_unknown({"d1"})
    assert "left out 2 judgements" in caplog.text
    assert "1 of 2 queries" in caplog.text
    assert kept.qrels == {"q1": {"d1": 1}}
    kept.check_documents({"d1"})
    with pytest.raises(InputError, match="no relevant document is in the corpus"):
        judged.without_unknown({"d9"})


def test_a_run_file_is_read_as_written(tmp_path):
    run = {"q1": {"b": 0.1 + 0.2, "a": 2.0}, "q2": {"a": -1e-9}}
    write_run(epath.Path(tmp_path / "runs" / "x.trec"), run, "ours")
    text = (tmp_path / "runs" / "x.trec").read_text()
    assert text.splitlines()[0] == "q1 Q0 a 1 2 ours"
    assert read_run(tmp_path / "runs" / "x.trec") == {
        query: pytest.approx(scores, rel=1e-8) for query, scores in run.items()
    }
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.encode()))
    assert read_run(tmp_path / "x.gz").keys() == run.keys()


def test_a_run_file_that_cannot_be_written_is_refused_with_the_flag(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "x.trec"):
        with pytest.raises(InputError, match="--run-file=FILE"):
            check_run_file(epath.Path(path))
    check_run_file(epath.Path(tmp_path / "new" / "x.trec"))
    assert not list((tmp_path / "new").iterdir())


def test_blanks_in_ids_are_encoded_in_a_run_file(tmp_path):
    write_run(epath.Path(tmp_path / "y"), {"q 1": {"my notes.txt": 1.0, "a\u3000b": 0.5}}, "ours")
    assert read_run(tmp_path / "y") == {"q%201": {"my%20notes.txt": 1.0, "a%E3%80%80b": 0.5}}


@pytest.mark.parametrize("content", [b"", b"q1 Q0 a 1 2\n", b"q1 Q0 a 1 high x\n", b"\xff\n"])
def test_other_files_are_not_run_files(tmp_path, content):
    (tmp_path / "x.trec").write_bytes(content)
    for path in (tmp_path / "x.trec", tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="not a TREC run file"):
            read_run(path)
