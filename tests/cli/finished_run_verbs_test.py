"""ask, eval and check on finished, unfinished, mismatched and damaged runs."""

import json
import shutil
from pathlib import Path

import pytest
from support.finished_run import STEP, publish_random_index, random_params
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.storage.layout import step_name

QUESTION = "What is the capital of Ora?"


def test_ask_prints_all_documented_fields(realm, finished, tiny):
    result = realm("ask", f"--workdir={finished.workdir}", "--k=3", "--json", QUESTION)
    report = result.json()
    assert result.out.count("\n") == 1
    assert {"question", "answer", "probability", "index_step", "passages"} <= report.keys()
    assert report["question"] == QUESTION
    assert report["index_step"] == STEP
    assert 0 < report["probability"] <= 1 + 1e-6
    assert len(report["passages"]) == 3
    for passage in report["passages"]:
        fields = {"id", "title", "text", "p_z", "p_answer", "span", "document_id"}
        assert passage.keys() == fields
        assert passage["text"] == tiny.store.body(passage["id"])
        if passage["span"] is not None:
            start, stop = passage["span"]
            assert passage["text"][start:stop].casefold() == report["answer"].casefold()
    assert any(passage["span"] is not None for passage in report["passages"])


def test_ask_prints_its_evidence(realm, finished):
    result = realm("ask", f"--workdir={finished.workdir}", QUESTION)
    assert result.code == 0
    assert ">>" in result.out
    assert f"index of step {STEP}" in result.out


def test_a_blank_is_filled_with_and_without_retrieval(realm, finished):
    text = "The capital of Ora is [MASK]."
    result = realm("ask", f"--workdir={finished.workdir}", "--json", text)
    report = result.json()
    assert result.out.count("\n") == 1
    assert {"answer", "probability", "without_retrieval", "answer_without_retrieval"} <= set(report)
    assert report["passages"][0]["id"] == -1
    assert sum(p["p_z"] for p in report["passages"]) == pytest.approx(1, abs=1e-4)
    given = realm("ask", f"--workdir={finished.workdir}", "--json", "--answer=ube", text).json()
    assert given["answer"] == "ube"
    assert given["probability"] < 1


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("", ["empty"]),
        (" \n ", ["empty"]),
        ("why " * 10_000, ["too long", "40000"]),
        ("what is the capital of ora, and " * 4, ["too long", "word pieces"]),
        ("[MASK] is the capital of [MASK].", ["one [MASK]", "found:    2"]),
        ("a river " * 40 + "[MASK]", ["too long", "word pieces"]),
    ],
)
def test_invalid_questions_are_refused(realm, finished, question, words):
    realm("ask", f"--workdir={finished.workdir}", "--json", question).refused(*words)


def test_an_empty_answer_for_a_blank_is_refused(realm, finished):
    command = ["ask", f"--workdir={finished.workdir}", "--answer=", "Ora is [MASK]."]
    realm(*command).refused("answer", "expected")
    command[2] = "--answer=" + "abcdefgh"
    realm(*command).refused("answer", "lengths.masks")


@pytest.mark.parametrize("k", ["0", "-1", "many"])
def test_numbers_of_passages_out_of_range_are_refused(realm, finished, k):
    realm("ask", f"--workdir={finished.workdir}", f"--k={k}", QUESTION).refused(k, code=2)


def test_more_passages_than_the_index_has_are_all_passages(realm, finished, tiny):
    report = realm("ask", f"--workdir={finished.workdir}", "--k=999", "--json", QUESTION).json()
    assert len(report["passages"]) == len(tiny.store)


@pytest.mark.parametrize("verb", ["ask", "eval"])
def test_questions_to_an_unfinished_run_are_refused(realm, tmp_path, verb):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    more = [QUESTION] if verb == "ask" else [f"--questions={questions}"]
    realm(verb, f"--workdir={tmp_path}", *more).refused(
        "no trained networks to answer with", "realm run"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["q.jsonl"]


def test_a_run_without_stage_realm_says_how_to_get_its_export(realm, copied, tmp_path):
    """`realm run` alone, the fix of before, has nothing left to do."""
    config = json.loads(copied.config.read_text())
    config["stages"]["realm"]["steps"] = 0
    copied.config.write_text(json.dumps(config))
    shutil.rmtree(copied.export)
    words = ("realm.steps=N", "--config.stages.realm.publish_start=true")
    asked = realm("ask", f"--workdir={copied.workdir}", QUESTION)
    asked.refused("a run without stage realm", *words)
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    tuned = realm("finetune", f"--workdir={copied.workdir}", f"--questions={questions}")
    tuned.refused("pre-training is not finished", *words)


def test_a_question_to_a_run_without_fine_tuning_is_refused(realm, tmp_path, tiny):
    from support.finished_run import write_finished_run

    workdir = tmp_path / "run"
    write_finished_run(workdir, tiny, tiny_config(tiny.folder), tuned=False)
    realm("ask", f"--workdir={workdir}", QUESTION).refused(
        "not fine-tuned", f"realm finetune --workdir={workdir} --questions=FILE"
    )
    assert realm("ask", f"--workdir={workdir}", "Ora is [MASK].").code == 0


def test_eval_prints_its_metrics_and_writes_predictions(realm, copied, tmp_path, tiny):
    path = tmp_path / "questions.jsonl"
    lines = [
        {"question": q.text, "answers": q.answers, "evidence": q.evidence} for q in tiny.questions
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["eval", f"--workdir={copied.workdir}", f"--questions={path}"]
    result = realm(*command, "--limit=5", "--json")
    report = result.json()
    assert result.out.count("\n") == 1
    assert report["questions"] == 5
    assert 0 <= report["exact_match"] <= 1
    assert set(report["recall_at"]) == {"1", "5", "20", "100"}
    assert report["recall_at"]["100"] == 1.0  # all forty passages are among the first hundred
    assert set(report["evidence_recall_at"]) == {"1", "5", "20", "100"}
    assert report["exact_match"] <= report["reader_oracle"] <= 1
    predictions = (copied.root / "predictions.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in predictions]
    assert [record["question"] for record in records] == [q.text for q in tiny.questions[:5]]
    for record in records:
        assert {"answers", "prediction", "right", "passages"} <= record.keys()
        assert len(record["passages"]) == 2
        assert record["passages"][0].keys() >= {"id", "title", "text", "p_z", "p_answer", "span"}


BENCHMARKS = {
    "nq": ['{"question": "What is the capital of Ora?", "answer": ["Ino0"]}', "Ino0"],
    "webquestions": ['[{"qText": "What is the capital of Ora?", "answers": ["Ino0"]}]', "Ino0"],
    "trec": ["1\tfactoid\tWhat is the capital of Ora?\tIno[0-9]|x", "Ino[0-9]|x"],
}


@pytest.mark.parametrize("format", BENCHMARKS)
def test_eval_of_each_benchmark_prints_a_table(realm, copied, tmp_path, format):
    content, answer = BENCHMARKS[format]
    (tmp_path / "q").write_text(content)
    where = tmp_path / "somewhere" / "p.jsonl"
    command = ["eval", f"--workdir={copied.workdir}", f"--questions={tmp_path / 'q'}"]
    result = realm(*command, f"--format={format}", f"--predictions={where}")
    assert result.code == 0, result.err
    assert "1 questions" in result.err
    cells = result.out.rstrip("\n").split("\t")
    assert cells[0] in ("right", "wrong")
    assert cells[1] == "What is the capital of Ora?"
    assert cells[3] == answer
    assert ">>" in cells[5]
    assert json.loads(where.read_text())["answers"] == [answer]
    assert not (copied.root / "predictions.jsonl").exists()


def test_eval_of_an_unknown_format_is_refused(realm, finished, tmp_path):
    command = ["eval", f"--workdir={finished.workdir}", f"--questions={tmp_path}"]
    realm(*command, "--format=triviaqa").refused("triviaqa", code=2)
    (tmp_path / "q").write_text(BENCHMARKS["trec"][0].replace("|x", "("))
    command[2] += "/q"
    realm(*command, "--format=trec").refused("does not compile", "q:1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"question": "Who?", "answers": ["me"]}\nnonsense\n', ["not JSON", "q.jsonl:2"]),
        (b'{"question": "Who?"}\n', ["not a question", "q.jsonl:1", "answers"]),
        (b"\n", ["empty"]),
        (b'{"question": "Z\xfcrich?", "answers": ["me"]}\n', ["not UTF-8", "q.jsonl"]),
        (None, ["no question file"]),
    ],
)
def test_invalid_question_files_are_refused(realm, finished, tmp_path, content, words):
    path = tmp_path / "q.jsonl"
    if content is not None:
        path.write_bytes(content)
    command = ["eval", f"--workdir={finished.workdir}", f"--questions={path}"]
    realm(*command).refused(*words, path)
    assert not (finished.root / "predictions.jsonl").exists()


def test_an_index_of_another_corpus_is_refused(realm, copied, tmp_path):
    (tmp_path / "other").mkdir()
    other = write_tiny_corpus(tmp_path / "other", count=30)
    config = tiny_config(other.folder)
    shutil.rmtree(copied.published_index)
    embedder = random_params(config, other.store.vocabulary.size)["embedder"]
    publish_random_index(copied, other, config, embedder)
    result = realm("ask", f"--workdir={copied.workdir}", QUESTION)
    result.refused("corpus has changed", "10 added, 0 removed, 0 changed (30 before, 40 now)")


def test_an_index_of_another_width_is_refused(realm, copied, tiny):
    config = tiny_config(tiny.folder, model__embedding=6)
    shutil.rmtree(copied.published_index)
    embedder = random_params(config, tiny.store.vocabulary.size)["embedder"]
    publish_random_index(copied, tiny, config, embedder)
    result = realm("ask", f"--workdir={copied.workdir}", QUESTION)
    result.refused("another dims", "dims 8", "dims 6")


def test_a_moved_corpus_is_refused_with_its_path(realm, tmp_path, tiny):
    from support.finished_run import write_finished_run

    write_finished_run(tmp_path / "run", tiny, tiny_config(tmp_path / "gone"))
    realm("ask", f"--workdir={tmp_path / 'run'}", QUESTION).refused("gone", "no folder")


def test_a_relative_corpus_path_in_another_directory_is_explained(
    realm, tmp_path, tiny, monkeypatch
):
    from support.finished_run import write_finished_run

    monkeypatch.chdir(tiny.folder.parent)
    write_finished_run(tmp_path / "run", tiny, tiny_config(tiny.folder.name))
    assert realm("ask", f"--workdir={tmp_path / 'run'}", QUESTION).code == 0
    monkeypatch.chdir(tmp_path)
    result = realm("ask", f"--workdir={tmp_path / 'run'}", QUESTION)
    result.refused(
        "no corpus in this folder",
        f"relative paths start at {tmp_path}",
        "in which the run was started",
    )


def test_report_writes_a_page_and_a_card(realm, copied, tmp_path):
    result = realm("report", f"--workdir={copied.workdir}", "--json")
    assert result.json() == {"report": str(copied.root / "report.html")}
    page = (copied.root / "report.html").read_text("utf-8")
    assert "Retrieval utility by rank" in page
    assert "Recall@5" not in page  # no evidence is known in this corpus
    assert (copied.export / "README.md").read_text("utf-8").startswith("---\nlibrary_name: realm")
    realm("report", f"--workdir={tmp_path / 'none'}").refused("no run here", "none")


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        ("", "run"),
        ("published_index", "steps"),
        ("export", "steps"),
        (f"published_index/{step_name(STEP)}", "published_index"),
        (f"export/{step_name(STEP)}", "export"),
    ],
)
def test_check_of_undamaged_folders_reports_no_problem(realm, finished, inside, kind):
    result = realm("check", finished.root / inside, "--json")
    assert result.code == 0
    assert {k: result.json()[k] for k in ("ok", "kind", "problems")} == {
        "ok": True,
        "kind": kind,
        "problems": [],
    }


def test_check_verifies_a_corpus_and_its_spans(realm, tiny):
    assert realm("check", tiny.folder, "--json").json()["kind"] == "corpus"
    assert realm("check", tiny.folder / "spans", "--json").json()["kind"] == "spans"


def _files(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


def _flip(path):
    content = bytearray(path.read_bytes() or b"\0")  # a corpus without ids has an empty file
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [_flip, lambda path: path.unlink()])
@pytest.mark.parametrize("part", ["published_index", "export"])
def test_check_names_each_damaged_file_of_a_run(realm, copied, part, damage):
    for path in _files(copied.root / part):
        if path.name == "LATEST.json" and damage is not _flip:
            continue  # the pointer only saves a listing of the folder
        kept = path.read_bytes()
        damage(path)
        result = realm("check", copied.workdir, "--json")
        assert result.code == 1, path
        name = str(path.relative_to(copied.root))
        assert name in [problem["file"] for problem in result.json()["problems"]]
        assert name in result.err
        path.write_bytes(kept)
    assert realm("check", copied.workdir).code == 0


@pytest.mark.parametrize("damage", [_flip, lambda path: path.unlink()])
def test_check_names_each_damaged_array_of_a_corpus(realm, tiny, tmp_path, damage):
    shutil.copytree(tiny.folder, tmp_path / "run" / "corpus" / "knowledge")
    (tmp_path / "run" / "config.json").write_text("{}")
    run = tmp_path / "run"
    assert realm("check", run, "--json").json()["kind"] == "run"
    for path in _files(run / "corpus"):
        if path.name == "MANIFEST.json":
            continue
        kept = path.read_bytes()
        damage(path)
        report = realm("check", run, "--json").json()
        assert [p["file"] for p in report["problems"]] == [str(path.relative_to(run))]
        path.write_bytes(kept)


@pytest.mark.parametrize("inside", ["", f"published_index/{step_name(STEP)}"])
def test_a_run_rebuilds_an_index_that_a_repair_deleted(realm, copied, tmp_path, inside):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["me"]}\n')
    (copied.published_index / step_name(STEP) / "rows.npy").unlink()
    fix = f"realm run --workdir={copied.root}"
    planned = realm("check", "--repair", "--dry-run", copied.root / inside)
    assert fix not in planned.err
    repaired = realm("check", "--repair", copied.root / inside)
    assert (repaired.code, fix in repaired.err) == (0, True), repaired.err
    workdir = f"--workdir={copied.root}"
    for verb in (["ask", QUESTION], ["eval", f"--questions={questions}"], ["serve", "--port=0"]):
        fix = f"realm index {workdir} --once"
        realm(verb[0], workdir, *verb[1:]).refused("index of the newest export", fix)


def test_check_of_a_missing_folder_is_refused(realm, tmp_path):
    realm("check", tmp_path / "none").refused("none", "a run folder", "NOT VALID")
