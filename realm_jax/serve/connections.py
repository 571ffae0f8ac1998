"""Connections that send no request are closed, so that they do not keep others out."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0  # from the connection, or the last response, to the end of a request's headers


class Connection(H11Protocol):
    """A connection with a limit of the time for the headers of each request.

    uvicorn's own limit ends with the first byte of a request. `guard` limits the time of a body.
    """

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the clock."""
        super().connection_made(transport)
        self._start_clock()

    def on_response_complete(self) -> None:
        """Starts the clock again, for the next request."""
        super().on_response_complete()
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops it."""
        self._stop_clock()
        super().connection_lost(exc)

    def _start_clock(self) -> None:
        self._stop_clock()
        if not self.transport.is_closing():
            self.deadline = self.loop.call_later(SECONDS, self._close_if_silent)

    def _stop_clock(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()

    def _close_if_silent(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
