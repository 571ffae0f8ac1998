"""The JSON API over real HTTP: answers, refusals and security headers."""

import contextlib
import errno
import os
import shlex
import socket
import time

import pytest
from served import serving
from support.accented_run import copied

from realm_jax.cli.main import main as realm
from realm_jax.inference import passage_editor
from realm_jax.serve import live_run
from realm_jax.serve.live_run import LiveRun
from realm_jax.storage.commit import OvertakenError

pytest.importorskip("fastapi", reason="needs the extra [serve]")
pytest.importorskip("fastapi_offline", reason="needs the extra [serve]")
pytest.importorskip("uvicorn", reason="needs the extra [serve]")

QUESTION = "what is the Café?"


@pytest.fixture(autouse=True)
def unchanged(api):
    """Undoes all changes before each test."""
    api("DELETE", "/api/edits")


def test_health_describes_the_run(api, answerer):
    health = api("GET", "/api/health").json()
    assert health["status"] == "ok"
    assert health["passages"] == len(answerer.store)
    assert health["index_step"] == answerer.index.step
    assert health["answers_questions"] is True


def test_an_answer_has_the_fields_of_realm_ask_and_a_closed_book_answer(api, answerer):
    reply = api("POST", "/api/ask", {"question": QUESTION, "k": 3})
    assert reply.status == 200
    plain, report = answerer.ask(QUESTION, 3).as_dict(), reply.json()
    assert report.keys() == plain.keys() | {"closed_book", "edits_version"}
    assert report["closed_book"].keys() == {"answer", "probability"}
    assert report["answer"] == plain["answer"]
    assert report["probability"] == pytest.approx(plain["probability"])
    for seen, passage in zip(report["passages"], plain["passages"], strict=True):
        assert seen.pop("edit") is None
        assert seen == {**passage, "span": passage["span"] and list(passage["span"])}


def test_a_blank_is_filled(api):
    report = api("POST", "/api/fill", {"text": "the river in [MASK]."}).json()
    assert {"answer", "probability", "without_retrieval", "answer_without_retrieval"} <= set(report)
    assert report["passages"][0]["id"] == -1
    given = api("POST", "/api/fill", {"text": "the river in [MASK].", "answer": "ulm"}).json()
    assert given["answer"] == "ulm"


def test_a_request_chooses_the_retriever(api, answerer):
    body = {"question": "the CAFÉ was open", "k": 1, "retriever": "bm25"}
    found = api("POST", "/api/ask", body).json()["passages"][0]["id"]
    assert found == answerer.bm25().search([body["question"]], 1)[0][0, 0] == 2
    assert api("GET", "/api/health").json()["retriever"] == "dense"
    for text in ("colbert", 3):
        api("POST", "/api/ask", {**body, "retriever": text}).refused(422, "retriever")
    batch = {"questions": [body["question"]], "k": 1, "retriever": "bm25"}
    assert api("POST", "/api/batch", batch).json()["answers"][0]["passages"][0]["id"] == found
    text = {"text": "the CAFÉ was [MASK]", "retriever": "bm25"}
    assert found in {p["id"] for p in api("POST", "/api/fill", text).json()["passages"]}


def test_a_batch_keeps_the_order(api):
    questions = [QUESTION, "what is the river?", QUESTION]
    answers = api("POST", "/api/batch", {"questions": questions, "k": 2}).json()["answers"]
    assert [answer["question"] for answer in answers] == questions
    assert answers[0] == answers[2]
    assert {len(answer["passages"]) for answer in answers} == {2}


def test_answers_use_added_edited_and_removed_passages(api, answerer):
    size = len(answerer.store)
    everything = {"question": QUESTION, "k": 20}
    before = api("POST", "/api/ask", everything).json()
    added = api("POST", "/api/passages", {"title": "Café", "text": "The Café is in Ani."})
    assert added.status == 201
    i = added.json()["id"]
    assert added.json()["edit"] == "added"
    after = api("POST", "/api/ask", everything).json()
    assert [p["id"] for p in after["passages"] if p["edit"] == "added"] == [i]
    assert len(after["passages"]) == size + 1
    assert after["edits_version"] == before["edits_version"] + 1
    assert after["index_step"] == before["index_step"] == answerer.index.step
    api("PUT", "/api/passages", {"id": i, "title": "", "text": "A river."})
    seen = {p["id"]: p for p in api("POST", "/api/ask", everything).json()["passages"]}
    assert seen[i]["text"] == "A river."
    assert api("DELETE", f"/api/passages?id={i}").status == 200
    assert api("DELETE", "/api/passages", {"id": 0}).status == 200
    seen = {p["id"]: p for p in api("POST", "/api/ask", everything).json()["passages"]}
    assert seen.keys() == set(range(1, size))
    assert [p["edit"] for p in api("GET", "/api/passages").json()["passages"]] == ["removed"]
    api("DELETE", "/api/edits?id=0")
    again = api("POST", "/api/ask", everything).json()
    assert again["passages"] == before["passages"]
    assert again["closed_book"] == before["closed_book"] == after["closed_book"]


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "texts"),
    [
        ("POST", "/api/ask", {"question": ""}, 400, ["empty"]),
        ("POST", "/api/ask", {"question": " \n"}, 400, ["empty"]),
        ("POST", "/api/ask", {"question": "why " * 10_000}, 400, ["too long", "40000"]),
        ("POST", "/api/ask", {"question": "a river " * 20}, 400, ["too long", "word pieces"]),
        ("POST", "/api/ask", {"question": "x" * 100_001}, 422, ["body.question", "100000"]),
        ("POST", "/api/ask", {"question": "x" * 300_000}, 413, ["too large", "bytes"]),
        ("POST", "/api/ask", {"question": "Who?", "k": 0}, 422, ["body.k"]),
        (
            "POST",
            "/api/ask",
            {"question": "Who?", "k": 10**9},
            400,
            ["too many passages", "body.k", "20"],
        ),
        ("POST", "/api/batch", {"questions": ["Who?"], "k": 21}, 400, ["body.k", "20", "21"]),
        ("POST", "/api/ask", {"question": "Who?", "k": True}, 422, ["body.k"]),
        ("POST", "/api/ask", {"question": "Who?", "K": 3}, 422, ["body.K"]),
        ("POST", "/api/ask", {"question": 5}, 422, ["body.question"]),
        ("POST", "/api/ask", {}, 422, ["body.question"]),
        ("POST", "/api/ask", b'{"question": "\\ud800"}', 422, ["body.question"]),
        ("POST", "/api/ask", b"{", 422, ["cannot be understood", "character 1", "JSON"]),
        ("POST", "/api/ask", b"\xff\xfe", 422, ["cannot be understood"]),
        ("POST", "/api/fill", {"text": "no blank"}, 400, ["one [MASK]", "0"]),
        ("POST", "/api/batch", {"questions": []}, 422, ["body.questions"]),
        ("POST", "/api/batch", {"questions": ["Who?"] * 65}, 422, ["body.questions"]),
        ("POST", "/api/batch", {"questions": ["Who?", ""]}, 400, ["empty"]),
        ("POST", "/api/passages", {"title": "t", "text": ""}, 400, ["passage is empty"]),
        ("POST", "/api/passages", {"text": "a river " * 90}, 400, ["too long", "lengths.passage"]),
        ("PUT", "/api/passages", {"id": 999, "text": "x"}, 400, ["no such passage", "999"]),
        ("PUT", "/api/passages", {"text": "x"}, 422, ["body.id"]),
        ("DELETE", "/api/passages", None, 400, ["not exactly one passage id"]),
        ("DELETE", "/api/passages?id=1", {"id": 1}, 400, ["not exactly one passage id"]),
        ("DELETE", "/api/passages?id=-1", None, 422, ["query.id"]),
        ("GET", "/api/nothing", None, 404, ["Not Found"]),
        ("GET", "/page/../api.py", None, 404, ["Not Found"]),
        ("GET", "/page/%2e%2e/api.py", None, 404, ["Not Found"]),
        ("GET", "/api/ask", None, 405, ["Method"]),
    ],
)
def test_bad_requests_are_refused_with_an_explanation_and_change_nothing(
    api, method, path, content, status, texts
):
    version = api("GET", "/api/health").json()["edits_version"]
    api(method, path, content).refused(status, *texts)
    assert api("GET", "/api/health").json()["edits_version"] == version


def test_the_error_of_a_request_that_does_not_declare_json_names_the_header(api):
    curl = {"Content-Type": "application/x-www-form-urlencoded"}  # of `curl --data`
    reply = api("POST", "/api/ask", {"question": "Who?"}, curl)
    reply.refused(422, "Content-Type", "application/json")


def test_requests_from_other_sites_and_for_other_hosts_are_refused(api):
    own = {"Origin": api.url}
    new = {"text": "a river"}
    api("POST", "/api/passages", new, {"Origin": "http://elsewhere.example"}).refused(403, "sites")
    api("POST", "/api/passages", new, {"Origin": "null"}).refused(403, "sites")
    api("GET", "/api/health", headers={"Host": "elsewhere.example"}).refused(403, "that name")
    api("GET", "/api/health", headers={"Host": "["}).refused(403, "that name")
    assert api("POST", "/api/passages", new, own).status == 201


def test_a_run_without_fine_tuning_only_fills_blanks(tmp_path, accents):
    from support.finished_run import write_finished_run
    from support.tiny_corpus import tiny_config

    write_finished_run(tmp_path / "run", accents, tiny_config(accents.folder), tuned=False)
    run = LiveRun.open(str(tmp_path / "run"))
    run.warm_up()
    with serving(run) as api:
        assert api("GET", "/api/health").json()["answers_questions"] is False
        api("POST", "/api/ask", {"question": "Who?"}).refused(
            400, "not fine-tuned", "realm finetune"
        )
        assert api("POST", "/api/fill", {"text": "the river in [MASK]."}).status == 200


def test_page_and_docs_load_nothing_from_other_sites(api):
    for path in ("/", "/page/page.css", "/page/page.js"):
        reply = api("GET", path)
        assert reply.status == 200
        assert b"//" not in reply.body.replace(b"\n//", b"\n") or path == "/page/page.js"
        assert b"http" not in reply.body.replace(b"http-equiv", b"")
        assert "default-src 'none'" in reply.headers["content-security-policy"]
    docs = api("GET", "/docs").body.decode()
    for asset in ("/docs/static/swagger-ui.css", "/docs/static/swagger-ui-bundle.js"):
        assert f'"{asset}"' in docs
        assert api("GET", asset).status == 200


def test_openapi_document_lists_every_endpoint(api):
    paths = api("GET", "/openapi.json").json()["paths"]
    assert {path: set(methods) for path, methods in paths.items()} == {
        "/api/health": {"get"},
        "/api/ask": {"post"},
        "/api/batch": {"post"},
        "/api/fill": {"post"},
        "/api/examples": {"get"},
        "/api/passages": {"get", "post", "put", "delete"},
        "/api/edits": {"delete"},
    }


def test_an_id_of_an_edit_is_taken_from_the_body_and_a_mistyped_one_undoes_nothing(api):
    one, two = (
        api("POST", "/api/passages", {"title": "", "text": text}).json()["id"]
        for text in ("a river", "a lake")
    )
    api("DELETE", "/api/edits?ID=1").refused(400, "ID")
    api("DELETE", f"/api/edits?id={one}", {"id": two}).refused(400, one, two)
    assert api("DELETE", "/api/edits", {"id": one}).json()["id"] == one
    left = api("GET", "/api/passages").json()["passages"]
    assert [passage["id"] for passage in left] == [two]


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (errno.EROFS, 400, ["no permission to write", "--read-only"]),
        (errno.ENOSPC, 400, ["the disk is full", "free space"]),
        (errno.EIO, 500, [os.strerror(errno.EIO)]),
    ],
)
def test_a_passage_that_cannot_be_written_is_refused_with_the_reason(
    api, monkeypatch, code, status, words
):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(passage_editor, "write_passages_generation", fail)
    api("POST", "/api/passages", {"title": "", "text": "a river"}).refused(status, *words)
    assert api("GET", "/api/passages").json()["passages"] == []


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "no space"), OSError(errno.EIO, "I/O"), OvertakenError("late")]
)
def test_a_change_that_is_saved_but_not_indexed_is_not_saved_again(
    answerer, tmp_path, monkeypatch, error
):
    def fail(*_, **__):
        raise error

    paths = {"corpus.knowledge": str(tmp_path / "corpus")}
    with serving(LiveRun(copied(answerer, tmp_path), paths=paths)) as client:
        with monkeypatch.context() as failing:
            failing.setattr(passage_editor, "extend", fail)
            reply = client("POST", "/api/passages", {"title": "", "text": "a river"})
        reply.refused(400, "the change is saved", error, "do not save again", "realm index")
        command = reply.json()["error"]["fix"].rpartition(": ")[2]
        assert realm(shlex.split(command)[1:]) == 0
        time.sleep(live_run._POLL_SECONDS)
        [passage] = client("GET", "/api/passages").json()["passages"]
        assert passage["text"] == "a river"
        found = client("POST", "/api/ask", {"question": QUESTION, "k": 20}).json()["passages"]
        assert [p["id"] for p in found if p["edit"] == "added"] == [passage["id"]]
        assert client("DELETE", f"/api/passages?id={passage['id']}").status == 200


REQUEST = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize("begins", [b"", REQUEST], ids=["first_request", "second_request"])
def test_silent_connections_do_not_keep_others_out(answerer, tmp_path, monkeypatch, begins):
    from realm_jax.serve import connections

    monkeypatch.setattr(connections, "SECONDS", 5.0)
    run = LiveRun(copied(answerer, tmp_path))
    with serving(run, limit_concurrency=4) as client, contextlib.ExitStack() as opened:
        port = int(client.url.rpartition(":")[2])
        for _ in range(4):
            silent = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            silent.sendall(begins + b"GET /api/hea")
        for status in (503, 200):
            until = time.monotonic() + 60
            while client("GET", "/api/health").status != status:
                assert time.monotonic() < until
                time.sleep(0.05)
