"""What every request passes before it reaches the model: its origin, its size, its rate."""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BYTES = 256 * 1024  # of a request's body
BODY_SECONDS = 10.0  # patience for it to arrive
RATE, BURST = 20.0, 60.0  # requests per second of one client, and how many at once
MOST_CLIENTS = 1024  # whose rates are remembered

_PAGE = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
_DOCS = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
_REST = "img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"


class Guard:
    """ASGI middleware.

    A page of another site that a person has open may send requests to this machine too, so the
    Host must be one we answer to (no DNS rebinding) and the Origin, if any, our own.

    Args:
      app: the application behind it.
      hosts: names that the Host header may give; empty for any.
      clock: seconds, for the rate.
    """

    def __init__(
        self, app: Any, hosts: Iterable[str] = (), clock: Callable[[], float] = time.monotonic
    ):
        self._app, self._hosts, self._clock = app, frozenset(hosts), clock
        self._allowance: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        send = _with_headers(send, scope["path"])
        refusal = self._foreign(headers) or self._too_often(scope)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        body = await _body(headers, receive)
        if body is None:
            await _refuse(send, 413, "the request is too large or too slow", _body_limit())
            return
        await self._app(scope, _replay(body, receive), send)

    def _foreign(self, headers: dict[str, str]) -> tuple[int, str, str] | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts and _parsed(f"//{host}")[0] not in self._hosts:
            return 403, "this server does not answer to that name", " or ".join(sorted(self._hosts))
        if origin is not None and _parsed(origin)[1] != host:
            return 403, "requests from pages of other sites are refused", f"a page of {host}"
        return None

    def _too_often(self, scope: Message) -> tuple[int, str, str] | None:
        """A bucket for each client: RATE requests a second flow in, BURST is all it holds."""
        client, now = (scope.get("client") or ("", 0))[0], self._clock()
        left, since = self._allowance.pop(client, (BURST, now))
        left = min(BURST, left + (now - since) * RATE)
        self._allowance[client] = (max(left - 1, 0), now)
        if len(self._allowance) > MOST_CLIENTS:
            self._allowance.popitem(last=False)
        if left < 1:
            return 429, "too many requests", f"at most {RATE:.0f} a second; try again in a second"
        return None


def _parsed(address: str) -> tuple[str | None, str | None]:
    """The name of its host, and that with the port as it is written; None if it is no address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None, None
    return parts.hostname, parts.netloc


async def _body(headers: dict[str, str], receive: Receive) -> bytes | None:
    """The whole body; None if it is too large or does not come."""
    promised = headers.get("content-length", "0")
    if not promised.isdecimal() or int(promised) > MOST_BYTES:
        return None
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) <= MOST_BYTES:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        return None
    return None


def _body_limit() -> str:
    return f"at most {MOST_BYTES} bytes within {BODY_SECONDS:.0f} s"


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever else comes (a client that leaves)."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _with_headers(send: Send, path: str) -> Send:
    policy = (_DOCS + "connect-src 'self'; " if path in ("/docs", "/redoc") else _PAGE) + _REST
    added = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store" if path.startswith("/api") else "no-cache",
    }
    extra = [(k.encode(), v.encode()) for k, v in added.items()]

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return with_headers


async def _refuse(send: Send, status: int, problem: str, expected: str) -> None:
    content = json.dumps({"error": {"problem": problem, "expected": expected}}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers += [(b"retry-after", b"1")] if status == 429 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
