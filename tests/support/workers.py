"""Workers of the index builder in threads of the test."""

import threading
import time

from realm_jax.errors import RealmError
from realm_jax.index_builder import run as index_builder
from realm_jax.index_builder.worker import Worker

PATIENCE = 600.0
POLL = 0.02


class Builder(threading.Thread):
    """A worker in a thread; `published` and `error` are what it returned and raised."""

    def __init__(self, run, number, count, last_step=0):
        super().__init__(daemon=True)
        self.given = (str(run.workdir), POLL, threading.Event(), Worker(number, count))
        self.last_step = last_step
        self.published, self.error = None, None
        self.start()

    def run(self):
        try:
            self.published = index_builder.run(*self.given, last_step=self.last_step)
        except RealmError as error:
            self.error = error

    def result(self):
        self.join(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.published


def wait_until(holds):
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)
