"""Renews a lock or a lease in a thread, so that it does not expire while its holder works."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

RETRY_SECONDS = 1.0  # between attempts to renew after one has failed

log = logging.getLogger(__name__)


@contextlib.contextmanager
def renewed(renew: Callable[[], None], seconds: float, what: str) -> Iterator[None]:
    """Calls `renew` four times per `seconds`, in a thread, until the block ends.

    Errors are logged once and retried.

    Args:
      renew: postpones the expiry; may raise any error.
      seconds: after which the lock or lease expires unless it is renewed.
      what: names it and the consequence of its expiry, for the log.
    """
    over = threading.Event()
    arguments = (renew, seconds, what, over)
    thread = threading.Thread(target=_renew_until, args=arguments, name="renewal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _renew_until(
    renew: Callable[[], None], seconds: float, what: str, over: threading.Event
) -> None:
    pause, failed = seconds / 4, False
    while not over.wait(min(pause, RETRY_SECONDS) if failed else pause):
        try:
            renew()
            failed = False
        except Exception as error:  # noqa: BLE001 - object stores raise errors of any type
            if not failed:
                kind = type(error).__name__
                log.error("%s; retrying to renew it: %s: %s", what, kind, error)
            failed = True
