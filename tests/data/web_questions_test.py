"""WebQuestions from TFDS: download, parsing and files, with a local server."""

import functools
import http.server
import json
import logging
import sys
import threading

import pytest
from tensorflow_datasets.question_answering import web_questions as published

from realm_jax.data.question_files import Question, read_questions
from realm_jax.errors import InputError

WHO = ("who is cher's son?", '(list (description "Elijah Blue Allman") (description Chaz))')
WHEN = ("when?", '(list (description "2012"))')


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A local server replaces the published download address; the data folder is empty."""
    for name, entries in {"train": [WHO, WHEN], "test": [WHEN]}.items():
        (tmp_path / "web" / name).mkdir(parents=True)
        records = [{"url": "u", "utterance": q, "targetValue": a} for q, a in entries]
        (tmp_path / "web" / name / "blob").write_text(json.dumps(records))
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "web")
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    urls = {name: f"{address}/{name}/blob" for name in ("train", "test")}
    monkeypatch.setattr(published, "_SPLIT_DOWNLOAD_URL", urls)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    yield server
    server.shutdown()
    server.server_close()


def test_both_splits_are_downloaded_once_and_read_without_tensorflow(served, caplog):
    with caplog.at_level(logging.INFO):
        train = read_questions("tfds:train", "webquestions")
    assert sorted(train, key=lambda question: question.text) == [
        Question("when?", ("2012",)),
        Question("who is cher's son?", ("Elijah Blue Allman", "Chaz")),
    ]
    assert "2 questions, which matches no published split (train 3,417" in caplog.text
    served.shutdown()
    served.server_close()
    assert read_questions("tfds:test", "webquestions") == [Question("when?", ("2012",))]
    assert "tensorflow" not in sys.modules


def test_a_failed_download_is_an_error_with_a_fix(served, tmp_path):
    (tmp_path / "web" / "train" / "blob").unlink()
    with pytest.raises(InputError, match="TFDS_DATA_DIR"):
        read_questions("tfds:train", "webquestions")


def test_an_unknown_split_is_an_error():
    with pytest.raises(InputError, match="train or test"):
        read_questions("tfds:dev", "webquestions")
