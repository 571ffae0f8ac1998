"""What every request passes first: its origin, bounded bodies, bounded rates."""

import asyncio

import pytest

from realm_jax.serve import guard


class Door:
    """A guard with nothing behind it, a clock to turn, and what it sent."""

    def __init__(self, body=(b"",), hosts=()):
        self.now, self.body, self.sent, self.reached = 0.0, list(body), [], []
        self.guard = guard.Guard(self._behind, hosts, clock=lambda: self.now)

    async def _behind(self, scope, receive, send):
        self.reached.append((await receive())["body"])

    async def _receive(self):
        part = self.body.pop(0) if self.body else b""
        return {"type": "http.request", "body": part, "more_body": bool(self.body)}

    async def _send(self, message):
        self.sent.append(message)

    def request(self, client="one", headers=()):
        self.sent.clear()
        scope = {"type": "http", "path": "/api/ask", "client": (client, 1), "headers": headers}
        asyncio.run(self.guard(scope, self._receive, self._send))
        return self.sent[0]["status"] if self.sent else 200


def test_a_client_may_send_bursts_and_then_so_many_a_second():
    door = Door()
    assert [door.request() for _ in range(int(guard.BURST))] == [200] * int(guard.BURST)
    assert door.request() == 429
    assert b"too many requests" in door.sent[1]["body"]
    assert door.request(client="another") == 200
    door.now = 1.0
    second = [door.request() for _ in range(int(guard.RATE) + 1)]
    assert second == [200] * int(guard.RATE) + [429]


def test_the_rates_of_many_clients_take_bounded_memory():
    door = Door()
    for number in range(guard.MOST_CLIENTS + 50):
        door.request(client=str(number))
    assert len(door.guard._allowance) == guard.MOST_CLIENTS


def test_a_body_in_parts_is_put_together_and_bounded():
    door = Door([b"ab", b"cd"])
    assert (door.request(), door.reached) == (200, [b"abcd"])
    endless = Door([bytes(1000)] * 1000)
    assert (endless.request(), endless.reached) == (413, [])
    assert len(endless.body) > 700
    lying = Door([b"ab"])
    assert lying.request(headers=[(b"content-length", b"-1")]) == 413


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.01)
    door = Door()

    async def never():
        await asyncio.sleep(60)

    door._receive = never
    assert (door.request(), door.reached) == (413, [])


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://here:80", 200), ("http://there", 403), ("http://[", 403), ("null", 403), ("", 403)],
)
def test_pages_of_other_sites_are_refused_whatever_they_are_called(origin, status):
    headers = [(b"host", b"here:80"), (b"origin", origin.encode())]
    assert Door().request(headers=headers) == status


def test_an_origin_that_is_none_is_not_that_of_a_request_without_a_host():
    assert Door().request(headers=[(b"origin", b"http://[")]) == 403


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
    assert Door(hosts=["Box"]).request(headers=[(b"host", host.encode())]) == status
