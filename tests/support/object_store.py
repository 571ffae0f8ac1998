"""Serves an object store on the loopback interface, and records what is requested from it."""

import contextlib
import functools
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

BUCKET = "s3://bucket"


@dataclass(frozen=True)
class Request:
    """One HTTP request: method, path with query, bytes of the two bodies."""

    method: str
    path: str
    received: int
    sent: int


@dataclass
class Traffic:
    """The requests since the last `clear`, which several threads may add."""

    requests: list[Request] = field(default_factory=list)

    def clear(self) -> None:
        """Forgets all requests."""
        self.requests.clear()

    def of(self, method: str, part: str = "") -> list[Request]:
        """The requests of a method whose path contains `part`."""
        return [one for one in self.requests if one.method == method and part in one.path]

    def bytes_read(self) -> int:
        """Bytes of all objects that were read."""
        return sum(one.sent for one in self.of("GET") if "list-type" not in one.path)

    def bytes_written(self) -> int:
        """Bytes of all objects that were written."""
        return sum(one.received for one in self.requests if one.method in ("PUT", "POST"))


@contextlib.contextmanager
def serve_object_store() -> Iterator[Traffic]:
    """Serves an empty bucket at `BUCKET` until the block ends; s3fs is directed to it."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs reads it (extra s3)")
    address, traffic = _server()
    urllib.request.urlopen(f"{address}/moto-api/reset", data=b"").close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem().mkdir(BUCKET.removeprefix("s3://"))
        traffic.clear()
        yield traffic


@functools.cache
def _server() -> tuple[str, Traffic]:
    """Starts the server of this process; its address. etils keeps using the first one."""
    server = pytest.importorskip("moto.server", reason="moto serves the object store")
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: Any) -> None:
            """Logs nothing."""

    traffic = Traffic()
    application = server.DomainDispatcherApplication(server.create_backend_app)
    recorded = _recorded(application, traffic)
    http = make_server("127.0.0.1", 0, recorded, threaded=True, request_handler=Quiet)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{http.server_port}", traffic


def _recorded(application: Any, traffic: Traffic) -> Any:
    """The WSGI application with its requests added to `traffic`."""

    def record(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = list(application(environ, start_response))
        sent = 0 if environ["REQUEST_METHOD"] == "HEAD" else sum(map(len, body))
        path = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        received = int(environ.get("CONTENT_LENGTH") or 0)
        traffic.requests.append(Request(environ["REQUEST_METHOD"], path, received, sent))
        return body

    return record
