"""Connections to process 0 that are not processes of the job: closed, and in nobody's way."""

import contextlib
import json
import socket
import threading
import time

import pytest

from realm_jax.errors import RealmError
from realm_jax.parallel import connection
from realm_jax.parallel.connection import Greetings, connect, new_token

TIMEOUT = 30.0  # seconds
TOKEN = new_token()


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    monkeypatch.setattr(connection, "GREETING_SECONDS", 1.0)
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", 15.0)


class Reception:
    """Process 0 of three; `result` holds its connections or its error once it is ready."""

    def __init__(self):
        self.server, self.result = socket.create_server(("127.0.0.1", 0)), []
        self.port = self.server.getsockname()[1]
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self):
        try:
            self.result.append(Greetings(self.server, TOKEN, 3).connections())
        except (RealmError, OSError) as error:
            self.result.append(error)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def ready(self):
        self._thread.join(TIMEOUT)
        return self.result[0]


@pytest.fixture
def reception():
    one = Reception()
    yield one
    one.server.close()
    one._thread.join(TIMEOUT)


GREETINGS = {
    "list": json.dumps([1, 2, 3]).encode() * 10,
    "text that is not UTF-8": b"\xff\xfe" * 30,
    "endless line": b"x" * 10_000_000,
    "letters for the token": ("ä" * 16 + "00000001").encode(),
    "another token": (new_token() + "00000001").encode(),
    "process 0": (TOKEN + "00000000").encode(),
    "process 3 of 3": (TOKEN + "00000003").encode(),
    "process -1": (TOKEN + "-0000001").encode(),
    "no number": (TOKEN + "abcdefgh").encode(),
    "end before the number": TOKEN.encode(),
}


@pytest.mark.parametrize("sent", GREETINGS.values(), ids=GREETINGS)
def test_a_wrong_greeting_is_closed_and_the_processes_still_join(reception, sent):
    with reception.socket() as other:
        with contextlib.suppress(OSError):  # it may be closed while it sends
            other.sendall(sent)
            other.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            assert other.recv(1) == b""
        assert reception.result == []
        joined = [connect("127.0.0.1", reception.port, TOKEN, number) for number in (2, 1)]
        found = reception.ready()
    assert [one.process for one in found] == [1, 2]
    found[1].send(hello=2)
    assert joined[0].receive() == {"hello": 2}


def test_a_second_connection_with_the_number_of_a_process_is_closed(reception):
    first = connect("127.0.0.1", reception.port, TOKEN, 1)
    with reception.socket() as second:
        time.sleep(0.3)  # the first greeting is read first
        second.sendall((TOKEN + "00000001").encode())
        assert second.recv(1) == b""
    connect("127.0.0.1", reception.port, TOKEN, 2)
    reception.ready()[0].send(hello=1)
    assert first.receive() == {"hello": 1}


def test_silent_connections_delay_nobody_and_start_no_thread(reception):
    """None of them is older than `GREETING_SECONDS` when the processes join."""
    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(reception.socket()) for _ in range(20)]
        silent[0].sendall(TOKEN[:5].encode())
        time.sleep(0.2)
        assert set(threading.enumerate()) == before
        start = time.monotonic()
        for number in (1, 2):
            connect("127.0.0.1", reception.port, TOKEN, number)
        assert len(reception.ready()) == 2
        assert time.monotonic() - start < 1.0 + 5.0  # one after the other: 20 s
        for one in silent:
            assert one.recv(1) == b""


def test_a_greeting_that_comes_in_drops_is_closed_after_the_limit(reception):
    with reception.socket() as slow:
        start = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in TOKEN * 2:
                slow.sendall(byte.encode())
                time.sleep(0.1)
        assert time.monotonic() - start < 4.0  # 6.4 s for all bytes
    for number in (1, 2):
        connect("127.0.0.1", reception.port, TOKEN, number)
    assert len(reception.ready()) == 2


def test_more_connections_than_the_limit_close_the_oldest(reception, monkeypatch):
    monkeypatch.setattr(connection, "GREETING_SECONDS", 100.0)
    monkeypatch.setattr(connection, "_MAX_UNGREETED", 4)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(reception.socket()) for _ in range(6)]
        assert [one.recv(1) for one in silent[:2]] == [b"", b""]
        for number in (1, 2):
            connect("127.0.0.1", reception.port, TOKEN, number)
        assert len(reception.ready()) == 2


def test_processes_that_do_not_connect_are_named(monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", 0.5)
    reception = Reception()
    error = reception.ready()
    reception.server.close()
    assert isinstance(error, RealmError) and "none of processes 1, 2" in str(error)


def test_a_message_is_bounded_and_an_object(reception, monkeypatch):
    monkeypatch.setattr(connection, "_MAX_MESSAGE_BYTES", 100)
    joined = [connect("127.0.0.1", reception.port, TOKEN, number) for number in (1, 2)]
    first, second = reception.ready()
    joined[0]._socket.sendall(b"[1]\n")
    joined[1]._socket.sendall(json.dumps({"value": "x" * 200}).encode() + b"\n")
    assert first.receive() == {} and second.receive() == {}
    joined[0]._socket.sendall(b"no JSON\n\xff\n")
    assert first.receive() == {} and first.receive() == {}
