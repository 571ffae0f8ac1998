"""`realm serve`: the page and the JSON API of a finished run."""

import argparse
import contextlib
import errno
import ipaddress
import logging
import os
import re
import socket
import sys
import threading
from typing import Any

from realm_jax import runtime
from realm_jax.cli import extras
from realm_jax.cli.arguments import add_flag, add_retriever, fusion_of, natural
from realm_jax.cli.overrides import add_workdir
from realm_jax.errors import RealmError

EXAMPLE = "realm serve --workdir=runs/demo --port=8000"
NEEDED = ["fastapi", "fastapi-offline", "uvicorn"]
_MAX_CONNECTIONS = 64  # more get status 503

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_workdir(parser)
    parser.add_argument(
        "--port", type=natural, default=8000, help="port; 0: any free port (default: 8000)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: this machine only"
    )
    parser.add_argument(
        "--allowed-hosts",
        type=_names,
        default=[],
        metavar="NAME,...",
        help="other DNS names under which clients reach this server, separated by commas",
    )
    add_flag(parser, "--read-only", "refuse requests that change passages")
    add_retriever(parser)
    parser.set_defaults(json=False)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Serves until interrupted; prints the address on stdout when it is ready."""
    extras.require("serve", NEEDED, "realm serve needs packages that are not installed")
    stop = runtime.start(mostly_idle=True)
    with _listener(arguments.host, arguments.port) as listener:
        from realm_jax.serve.api import make_app
        from realm_jax.serve.live_run import LiveRun

        how = (arguments.retriever, fusion_of(arguments))
        read_only = arguments.read_only
        run = LiveRun.open(arguments.workdir, *how, arguments.overrides, read_only=read_only)
        log.info("compiling before the first request")
        run.warm_up()
        hosts = _host_names(arguments.host, arguments.allowed_hosts)
        if not _is_loopback(arguments.host):
            rights = "" if read_only else " and change its passages"
            log.warning(_PUBLIC_WARNING, arguments.host, rights)
            log.info("requests may name an IP address or %s", ", ".join(sorted(hosts)))
        _serve(make_app(run, hosts), listener, stop)
    return {}


_PUBLIC_WARNING = (
    "WARNING: listening on %s. Everybody who can reach this address can query this model, read its "
    "corpus%s. There is no password. Leave out --host to serve this machine only; --read-only "
    "refuses changes."
)


def _listener(host: str, port: int) -> socket.socket:
    """A bound socket; fails before the model is loaded if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with contextlib.ExitStack() as unless_bound:
            listener = unless_bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host.encode("idna"), port))
            unless_bound.pop_all()
    except (OSError, OverflowError, UnicodeError) as error:
        fixes = {
            errno.EADDRINUSE: "choose another --port, or 0 for any free port",
            errno.EACCES: "choose a --port of 1024 or more",
        }
        raise RealmError(
            "cannot listen on this address",
            where=f"--host={host} --port={port}",
            expected="a free port of this machine",
            found=error,
            fix=fixes.get(getattr(error, "errno", 0) or 0),
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_names(host: str, allowed: list[str]) -> set[str]:
    """Names that the Host header of a request may have; IP addresses are always accepted."""
    names = {"localhost", host.encode("idna").decode(), *allowed}
    if not _is_loopback(host):
        names |= {socket.gethostname(), socket.getfqdn()}
    return names - {""}


def _names(text: str) -> list[str]:
    """DNS names separated by commas, as a browser writes them in the Host header."""
    names = []
    for name in text.split(","):
        with contextlib.suppress(UnicodeError):
            encoded = name.strip().encode("idna").decode()
            if re.fullmatch(r"[\w.-]+", encoded):
                names.append(encoded)
                continue
        raise argparse.ArgumentTypeError(
            f"expected DNS names without scheme and port, such as qa.example.org, found {name!r}"
        )
    return names


def _serve(app: Any, listener: socket.socket, stop: threading.Event) -> None:
    """Serves until `stop` is set, then finishes running requests."""
    import uvicorn

    from realm_jax.serve.connections import Connection

    config = uvicorn.Config(
        app,
        http=Connection,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=10,
    )
    server = uvicorn.Server(config)
    listener.listen(_MAX_CONNECTIONS)  # clients may connect as soon as the address below is printed
    # uvicorn installs no signal handlers outside the main thread.
    thread = threading.Thread(target=server.run, args=([listener],), name="server", daemon=True)
    thread.start()
    host, port = listener.getsockname()[:2]
    sys.stdout.write(f"serving http://{f'[{host}]' if ':' in host else host}:{port}/\n")
    sys.stdout.flush()
    while thread.is_alive() and not stop.wait(0.2):
        pass
    server.should_exit = True
    thread.join(timeout=20)
    if not stop.is_set():
        raise RealmError("the server stopped unexpectedly", found="see the log above")
