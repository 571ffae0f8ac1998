"""`realm train` as one process of a job; environment variables make it slow or make it fail."""

import logging
import os
import sys
import time

from realm_jax.cli.main import main
from realm_jax.errors import DamageError
from realm_jax.parallel.program import Program
from realm_jax.trainer import index_manager

original = index_manager.open_index
call = Program.__call__
refused = []


def open_index(folder, *others):
    """SLOW delays it by that many seconds; REFUSES makes the first index after step 0 fail."""
    if int(folder.name) == 0:
        return original(folder, *others)
    time.sleep(float(os.environ.get("SLOW", "0")))
    if "REFUSES" in os.environ and refused in ([], [folder.name]):
        refused[:] = [folder.name]
        raise DamageError(
            "published file is damaged", where=folder, found="an error raised by the test"
        )
    return original(folder, *others)


def late_call(program, *arguments, **options):
    """LATE delays the first training step by that many seconds, as a long compilation does."""
    if program.name == "ict/train":
        time.sleep(float(os.environ.pop("LATE", "0")))
    return call(program, *arguments, **options)


if __name__ == "__main__":
    logging.getLogger().handlers.clear()  # `realm` configures logging
    index_manager.open_index = open_index
    Program.__call__ = late_call
    sys.exit(main())
