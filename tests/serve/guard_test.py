"""The request guard: host and origin checks, limits on body size and request rate."""

import asyncio

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

from realm_jax.serve import guard


class Guarded:
    """A guard in front of a dummy application, with a clock and the messages that it sent."""

    def __init__(self, body=(b"",), hosts=("here",)):
        self.now, self.body, self.sent, self.reached = 0.0, list(body), [], []
        self.guard = guard.Guard(self._application, hosts, clock=lambda: self.now)

    async def _application(self, scope, receive, send):
        self.reached.append((await receive())["body"])

    async def _receive(self):
        part = self.body.pop(0) if self.body else b""
        return {"type": "http.request", "body": part, "more_body": bool(self.body)}

    async def _send(self, message):
        self.sent.append(message)

    def request(self, client="one", headers=((b"host", b"here"),)):
        self.sent.clear()
        scope = {"type": "http", "path": "/api/ask", "client": (client, 1), "headers": headers}
        asyncio.run(self.guard(scope, self._receive, self._send))
        return self.sent[0]["status"] if self.sent else 200


def test_a_client_may_send_a_burst_and_then_a_limited_rate():
    guarded = Guarded()
    assert [guarded.request() for _ in range(int(guard.BURST))] == [200] * int(guard.BURST)
    assert guarded.request() == 429
    assert b"too many requests" in guarded.sent[1]["body"]
    assert guarded.request(client="another") == 200
    guarded.now = 1.0
    second = [guarded.request() for _ in range(int(guard.RATE) + 1)]
    assert second == [200] * int(guard.RATE) + [429]


def test_rates_of_many_clients_use_bounded_memory():
    guarded = Guarded()
    for number in range(guard.MOST_CLIENTS + 50):
        guarded.request(client=str(number))
    assert len(guarded.guard._allowance) == guard.MOST_CLIENTS


def test_a_body_in_parts_is_joined_and_limited():
    guarded = Guarded([b"ab", b"cd"])
    assert (guarded.request(), guarded.reached) == (200, [b"abcd"])
    endless = Guarded([bytes(1000)] * 1000)
    assert (endless.request(), endless.reached) == (413, [])
    assert len(endless.body) > 700
    negative = Guarded([b"ab"])
    headers = [(b"host", b"here"), (b"content-length", b"-1")]
    assert negative.request(headers=headers) == 413


def test_a_body_that_never_arrives_is_refused_after_a_timeout(monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.01)
    guarded = Guarded()

    async def never():
        await asyncio.sleep(60)

    guarded._receive = never
    assert (guarded.request(), guarded.reached) == (413, [])


def test_a_request_whose_client_goes_away_within_the_body_is_not_handled():
    guarded = Guarded()

    async def gone():
        return {"type": "http.disconnect"}

    guarded._receive = gone
    assert (guarded.request(), guarded.reached) == (413, [])


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://here:80", 200), ("http://there", 403), ("http://[", 403), ("null", 403), ("", 403)],
)
def test_requests_from_pages_of_other_sites_are_refused(origin, status):
    headers = [(b"host", b"here:80"), (b"origin", origin.encode())]
    assert Guarded().request(headers=headers) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("box:8000", 200),
        ("BOX", 200),
        ("192.0.2.1:8000", 200),
        ("[::1]:8000", 200),
        ("box.evil.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_host_header_must_be_an_allowed_name_or_an_ip_address(host, status):
    assert Guarded(hosts=["Box"]).request(headers=[(b"host", host.encode())]) == status


@pytest.mark.parametrize("hosts", [[], [""]])
@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 403), ("[", 403), ("", 403), ("192.0.2.1", 200)]
)
def test_without_allowed_names_only_ip_addresses_are_accepted(hosts, host, status):
    guarded = Guarded(hosts=hosts)
    assert guarded.request(headers=[(b"host", host.encode())]) == status
    assert status == 200 or b"--allowed-hosts=" in guarded.sent[1]["body"]
    assert Guarded(hosts=hosts).request(headers=[]) == 403
