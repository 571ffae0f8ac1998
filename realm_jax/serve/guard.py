"""Checks every HTTP request before it reaches the model: host, origin, rate and body size."""

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 256 * 1024  # of a request's body
BODY_SECONDS = 10.0  # until the whole body has arrived
RATE, BURST = 20.0, 60.0  # requests per second of one client, and the most at once
MOST_CLIENTS = 1024  # clients whose request rate is tracked

_PAGE = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
_DOCS = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
_REST = "img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

# The names themselves are not shown: another site may read this message.
_NAMES = "an IP address, or a name of this server; realm serve --allowed-hosts=NAME allows another"

_Refusal = tuple[int, str, str]  # status, problem, expected


class Guard:
    """ASGI middleware that refuses requests which other web sites send through a user's browser.

    The Host header must be an IP address or one of `hosts`: after DNS rebinding, the name of
    another site has the address of this server. The Origin header, if there is one, must be this
    server. Refusals are JSON, as in the API.

    Args:
      app: the application to protect.
      hosts: names that the Host header may have; without any, it must be an IP address.
      clock: returns seconds; used for the rate.
    """

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str], clock: Callable[[], float] = time.monotonic
    ):
        self._app, self._clock = app, clock
        self._hosts = frozenset(host.lower() for host in hosts if host)
        self._allowance: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request; see the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, send = Headers(scope=scope), _with_headers(send, scope["path"])
        refusal = self._wrong_site(headers) or self._too_often(scope)
        body = None if refusal else await _body(headers, receive)
        if body is not None:
            await self._app(scope, _replay(body, receive), send)
            return
        limit = f"at most {MOST_BYTES} bytes within {BODY_SECONDS:.0f} s"
        status, problem, expected = refusal or (413, "the request is too large or too slow", limit)
        extra = {"connection": "close"} | ({"retry-after": "1"} if status == 429 else {})
        content = {"error": {"problem": problem, "expected": expected}}
        await JSONResponse(content, status, extra)(scope, receive, send)

    def _wrong_site(self, headers: Headers) -> _Refusal | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        name = _split(f"//{host}")[0]
        if name not in self._hosts and not _is_address(name):
            return 403, "this server does not answer to that name", _NAMES
        if origin is not None and _split(origin)[1] != host:
            return 403, "requests from pages of other sites are refused", f"a page of {host}"
        return None

    def _too_often(self, scope: Scope) -> _Refusal | None:
        """Token bucket per client: refilled at RATE tokens a second, up to BURST."""
        client, now = (scope.get("client") or ("", 0))[0], self._clock()
        tokens, since = self._allowance.pop(client, (BURST, now))
        tokens = min(BURST, tokens + (now - since) * RATE)
        self._allowance[client] = (max(tokens - 1, 0), now)
        if len(self._allowance) > MOST_CLIENTS:
            self._allowance.popitem(last=False)
        if tokens < 1:
            return 429, "too many requests", f"at most {RATE:.0f} a second; try again in a second"
        return None


def _split(address: str) -> tuple[str, str | None]:
    """Host name in lower case, and host:port as written; ("", None) if it is no address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "", None
    return parts.hostname or "", parts.netloc


def _is_address(name: str) -> bool:
    """Whether a host is an IP address, which DNS rebinding cannot use."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The whole body; None if it is too large or too slow, or the client has gone."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        return None
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) <= MOST_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        return None
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Returns the body as one message, then passes on later messages (a disconnect)."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def _with_headers(send: Send, path: str) -> Send:
    """Adds the security headers to the response."""
    policy = (_DOCS + "connect-src 'self'; " if path in ("/docs", "/redoc") else _PAGE) + _REST

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = policy
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "no-referrer"
            headers["cache-control"] = "no-store" if path.startswith("/api") else "no-cache"
        await send(message)

    return with_headers
