"""Serves a run over real HTTP on a free local port, for tests."""

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from realm_jax.serve.live_run import LiveRun


@dataclass(frozen=True)
class Reply:
    """An HTTP response."""

    status: int
    body: bytes
    headers: dict[str, str]

    def json(self) -> dict[str, Any]:
        """The body as a JSON object."""
        return json.loads(self.body)

    def refused(self, status: int, *texts: object) -> None:
        """Checks the status, and that the error contains all of `texts`."""
        assert self.status == status, self.body
        error = self.json()["error"]
        for text in texts:
            assert str(text) in " ".join(map(str, error.values())), error


@dataclass(frozen=True)
class Client:
    """An HTTP client for one server."""

    url: str

    def __call__(
        self, method: str, path: str, content: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        data = content if content is None or isinstance(content, bytes) else _json(content)
        sent = {"Content-Type": "application/json"} | (headers or {})
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return Reply(reply.status, reply.read(), dict(reply.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read(), dict(error.headers))


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


@contextlib.contextmanager
def serving(run: LiveRun, **settings: Any) -> Iterator[Client]:
    """Runs the application in a thread and yields a client."""
    import uvicorn

    from realm_jax.serve.api import make_app
    from realm_jax.serve.connections import Connection

    app = make_app(run, ["127.0.0.1", "localhost"])
    config = uvicorn.Config(app, http=Connection, log_config=None, lifespan="off", **settings)
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join()
