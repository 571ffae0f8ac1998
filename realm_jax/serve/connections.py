"""Connections that send no request are closed, so that they do not keep others out."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0  # from the connection to the end of the headers of its first request


class Connection(H11Protocol):
    """A connection with a limit of the time for its first request.

    uvicorn has limits for the time between requests, and `guard` for that of a body.
    """

    def connection_made(self, transport: Any) -> None:
        """Starts the clock."""
        super().connection_made(transport)
        self.deadline: asyncio.TimerHandle = self.loop.call_later(SECONDS, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops it."""
        self.deadline.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.scope is None:
            self.transport.close()
