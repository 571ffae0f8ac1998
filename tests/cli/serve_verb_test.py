"""`realm serve` as a process, and mistakes that it reports before it loads a model."""

import contextlib
import errno
import http.client
import json
import signal
import socket
import subprocess
import urllib.request
from urllib.parse import urlsplit

import pytest
from support.finished_run import write_finished_run
from support.tiny_corpus import tiny_config

from realm_jax.cli import extras, serve
from realm_jax.runtime import realm_command

pytest.importorskip("fastapi", reason="needs the extra [serve]")
pytest.importorskip("fastapi_offline", reason="needs the extra [serve]")
pytest.importorskip("uvicorn", reason="needs the extra [serve]")


@contextlib.contextmanager
def server(finished, *flags):
    """`realm serve` as a process, and its URL."""
    process = subprocess.Popen(
        realm_command("serve", "--port=0", *flags, f"--workdir={finished.workdir}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("serving http://"), process.stderr.read()
        yield process, line.split()[1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_it_answers_until_it_gets_a_signal(finished, number):
    with server(finished) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}api/health", timeout=60) as reply:
            assert json.load(reply)["status"] == "ok"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert "WARNING" not in err


def reply(port, host, method="GET", path="/api/health", body=None):
    """Status and JSON of a request that names `host`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        sent = {"Host": host, "Origin": f"http://{host}", "Content-Type": "application/json"}
        connection.request(method, path, body and json.dumps(body), sent)
        response = connection.getresponse()
        return response.status, json.load(response)


@pytest.mark.slow
def test_beyond_loopback_other_names_cannot_read_or_edit_passages(finished):
    """After DNS rebinding, a browser sends the requests of evil.example to this server."""
    with server(finished, "--host=0.0.0.0", "--allowed-hosts=qa.example,bücher.example") as (
        process,
        url,
    ):
        port = urlsplit(url).port
        names = ["127.0.0.1", "192.0.2.1", "localhost", socket.gethostname(), "qa.example"]
        for name in [*names, "xn--bcher-kva.example"]:
            assert reply(port, f"{name}:{port}")[0] == 200, name
        edit = {"title": "Ora", "text": "The capital of Ora is x."}
        for name in ("evil.example", f"evil.example:{port}", "qa.example.evil.example", ""):
            assert reply(port, name)[0] == 403, name
            status, refusal = reply(port, name, "POST", "/api/passages", edit)
            assert status == 403 and "--allowed-hosts=" in refusal["error"]["expected"]
            assert "qa.example" not in json.dumps(refusal)
        assert reply(port, "qa.example")[1]["edits_version"] == 0
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert "WARNING: listening on 0.0.0.0" in err
    assert "requests may name an IP address or" in err and "qa.example" in err


@pytest.mark.parametrize(
    "names", ["", "qa.example,", "https://qa.example", "qa.example:443", "*", "a..b"]
)
def test_allowed_hosts_that_match_no_request_are_refused(realm, tmp_path, names):
    result = realm("serve", f"--workdir={tmp_path}", f"--allowed-hosts={names}")
    result.refused("--allowed-hosts", "DNS names without scheme and port", code=2)


def test_a_port_in_use_is_refused(realm, finished):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = realm("serve", f"--workdir={finished.workdir}", f"--port={port}")
    result.refused("cannot listen on this address", port, "another --port")


def test_invalid_addresses_are_refused(realm, finished):
    command = ["serve", f"--workdir={finished.workdir}"]
    realm(*command, "--port=99999").refused("cannot listen on this address", "99999")
    realm(*command, "--host=999.1.1.1", "--port=0").refused(
        "cannot listen on this address", "999.1.1.1"
    )
    realm(*command, f"--host={64 * 'ä'}", "--port=0").refused("cannot listen on this address", "ä")
    realm(*command, "--port=http").refused("http", code=2)


def test_an_unsupported_address_family_is_refused(realm, finished, monkeypatch):
    def lacking(*_):
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported")

    monkeypatch.setattr(socket, "socket", lacking)
    result = realm("serve", f"--workdir={finished.workdir}", "--host=::1", "--port=0")
    result.refused("cannot listen on this address", "Address family not supported")


def test_an_unfinished_run_is_refused(realm, tmp_path):
    realm("serve", f"--workdir={tmp_path}", "--port=0").refused(
        "no trained networks to answer with"
    )


def test_a_moved_corpus_is_refused_with_its_path(realm, tmp_path, tiny):
    write_finished_run(tmp_path / "run", tiny, tiny_config(tmp_path / "gone"))
    realm("serve", f"--workdir={tmp_path / 'run'}", "--port=0").refused("gone", "no folder")


def test_a_missing_serve_extra_is_named_with_its_install_command(realm, finished, monkeypatch):
    lacking = {"serve": ["fastapi>=0.1", "realm-no-such-package>=1"]}
    monkeypatch.setattr(extras, "requirements", lambda: lacking)
    result = realm("serve", f"--workdir={finished.workdir}")
    result.refused("not installed", "-m pip install 'realm-no-such-package>=1'")
    assert "fastapi>=" not in result.err


def test_loopback_addresses_are_recognised():
    assert all(map(serve._is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(serve._is_loopback, ("0.0.0.0", "::", "192.0.2.1", "example.org")))


def test_beyond_loopback_only_names_of_this_machine_and_allowed_names_are_served(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "getfqdn", lambda: "box.lan")
    assert serve._host_names("0.0.0.0", ["qa.example"]) == {
        "0.0.0.0",
        "box",
        "box.lan",
        "localhost",
        "qa.example",
    }
    assert serve._host_names("", []) == {"box", "box.lan", "localhost"}
    assert serve._host_names("127.0.0.1", []) == {"127.0.0.1", "localhost"}
