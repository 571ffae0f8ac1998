"""Models by their name on the Hub, against a server on this machine (`HF_ENDPOINT`)."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from safetensors.numpy import load, load_file
from support.other_formats import state_dict, write_hugging_face_folder

from realm_jax.interop.hub import is_hub_id

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b"{}", "vocab.txt": b"[PAD]", "model.safetensors": b"abc"}
UPLOADED: dict[str, str] = {}  # path -> content, base64
ASKED: list[str] = []  # paths of requests


class Hub(BaseHTTPRequestHandler):
    """What downloads and uploads of `huggingface_hub` ask for; it has one model, org/made."""

    def log_message(self, *_):
        pass

    def _send(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        ASKED.append(self.path)
        path = self.path.split("?")[0]
        if path.startswith("/api/models/org/made/tree/"):
            return self._send([_entry(name, content) for name, content in FILES.items()])
        if path.startswith("/api/models/org/made"):
            if path.endswith("/revision/none"):
                return self._send({}, 404, X_Error_Code="RevisionNotFound")
            siblings = [{"rfilename": name} for name in FILES]
            return self._send({"id": "org/made", "sha": COMMIT, "siblings": siblings})
        if path.startswith("/org/made/resolve/"):
            content = FILES[path.removeprefix("/org/made/resolve/").partition("/")[2]]
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            return self._send(content, ETag=etag, X_Repo_Commit=COMMIT)
        return self._send({}, 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self):
        ASKED.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            return self._send({"url": f"http://{self.headers['Host']}/org/new"})
        if self.path == "/api/validate-yaml":
            return self._send({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files
            ]
            return self._send({"files": modes})
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                UPLOADED[entry["value"]["path"]] = entry["value"]["content"]
        return self._send(
            {
                "commitUrl": f"http://{self.headers['Host']}/org/new/commit/{COMMIT}",
                "commitOid": COMMIT,
                "commitMessage": "",
            }
        )


def _entry(name, content):
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": name, "size": len(content), "oid": oid}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    UPLOADED.clear()
    ASKED.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def called(code, endpoint, home, **more):
    """Runs Python code in a process; `huggingface_hub` reads its variables when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_TOKEN": "hf_x"}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", **more}
    command = [sys.executable, "-c", f"from realm_jax.interop import hub\n{code}"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or ended.stderr.strip().splitlines()[-1]


DOWNLOAD = """
from realm_jax.errors import RealmError
try:
    folder = hub.download({name!r})
    print(*sorted(p.name for p in folder.iterdir()))
except RealmError as error:
    print("refused", error)
"""


def test_the_vocabularies_of_an_export_with_several_networks_are_downloaded(
    hub, tmp_path, monkeypatch
):
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        monkeypatch.setitem(FILES, f"reader/{name}", FILES[name])
    code = "from pathlib import Path\nfolder = hub.download('org/made')\nprint(*sorted(p.name "
    code += "for p in (folder / 'reader').iterdir()))"
    assert called(code, hub, tmp_path) == "config.json model.safetensors vocab.txt"


def test_a_linear_layer_that_has_no_safetensors_is_downloaded(hub, tmp_path, monkeypatch):
    for name in ("config.json", "pytorch_model.bin"):
        monkeypatch.setitem(FILES, f"2_Dense/{name}", b"{}")
    monkeypatch.setitem(FILES, "pytorch_model.bin", b"the transformer, which has safetensors")
    code = "folder = hub.download('org/made')\nprint(*sorted(str(p.relative_to(folder)) "
    code += "for p in folder.rglob('*.bin')))"
    assert called(code, hub, tmp_path) == "2_Dense/pytorch_model.bin"


def test_a_model_is_downloaded_once_and_then_found_offline(hub, tmp_path):
    download = DOWNLOAD.format(name="org/made@main")
    names = "config.json model.safetensors vocab.txt"
    assert called(download, hub, tmp_path) == names
    requests = sum("/resolve/" in path for path in ASKED)
    assert requests >= 3
    assert called(download, hub, tmp_path) == names
    assert sum("/resolve/" in path for path in ASKED) <= requests + 3  # checks, not contents
    assert called(download, hub, tmp_path, HF_HUB_OFFLINE="1") == names


@pytest.mark.parametrize(
    "name, more, found",
    [
        ("org/none", {}, "no such model on the Hub"),
        ("org/made@none", {}, "no such revision"),
        ("org/made", {"HF_HUB_OFFLINE": "1"}, "the Hub cannot be reached"),
        ("org/made", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "the Hub cannot be reached"),
    ],
)
def test_models_that_cannot_be_had_are_refused_with_the_reason(hub, tmp_path, name, more, found):
    endpoint = more.pop("HF_ENDPOINT", hub)
    printed = called(DOWNLOAD.format(name=name), endpoint, tmp_path, **more)
    assert printed.startswith("refused") and found in printed


def test_a_folder_is_uploaded(hub, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "README.md").write_text("# Model")
    code = f"from pathlib import Path\nprint(hub.upload(Path({str(folder)!r}), 'org/new'))"
    assert "org/new" in called(code, hub, tmp_path / "home")
    assert set(UPLOADED) == {"README.md"}


@pytest.mark.parametrize(
    "name, possible",
    [
        ("org/name", True),
        ("org/name@v1.0", True),
        ("BAAI/bge-small-en-v1.5", True),
        ("/org/name", False),
        ("../org", False),
        ("./name", False),
        ("a/b/c", False),
        ("almanac", False),
        ("tests/interop", False),  # a folder here
    ],
)
def test_names_of_the_hub(name, possible):
    assert is_hub_id(name) == possible


VERBS = """
from realm_jax.cli.main import main
print(*[main(words) for words in {commands!r}])
"""


@pytest.mark.slow
def test_verbs_take_a_model_by_its_name(hub, tmp_path, monkeypatch):
    made = write_hugging_face_folder(tmp_path / "made", state_dict("embedder"))
    for file in made.iterdir():
        monkeypatch.setitem(FILES, file.name, file.read_bytes())
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "Oslo.txt").write_text("Oslo is the capital of Norway in 1999.")
    notes = [f"--input={tmp_path / 'notes'}", f"--out={tmp_path / 'corpus'}"]
    commands = [
        ["import", "--from=org/made@main", f"--to={tmp_path / 'weights'}"],
        ["corpus", "build", "--format=text", "--vocab=org/made", *notes],
        ["export", f"--from={tmp_path / 'weights'}", "--push-to-hub=org/new"],
        ["import", "--from=org/none", f"--to={tmp_path / 'none'}"],
    ]
    printed = called(VERBS.format(commands=commands), hub, tmp_path / "home")
    assert printed.splitlines()[-1] == "0 0 0 1"
    assert (tmp_path / "corpus/vocab.txt").read_bytes() == FILES["vocab.txt"]
    assert FILES.keys() <= UPLOADED.keys()
    sent = base64.b64decode(UPLOADED["model.safetensors"])
    np.testing.assert_equal(load(sent), load_file(tmp_path / "weights" / "model.safetensors"))


def test_a_cache_that_cannot_be_written_is_an_error_of_the_disk(hub, tmp_path):
    (tmp_path / "home").write_text("a file")
    code = (
        DOWNLOAD.format(name="org/made")
        + """
except OSError as error:
    print(type(error).__name__)
"""
    )
    assert called(code, hub, tmp_path / "home") in ("FileExistsError", "NotADirectoryError")
