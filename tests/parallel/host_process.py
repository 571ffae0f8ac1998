"""`realm train` as one of several processes, slow or unable to open an index when told so."""

import logging
import os
import sys
import time

from realm_jax.cli.main import main
from realm_jax.errors import DamageError
from realm_jax.trainer import index_manager as index_in_use

opened = index_in_use.open_index
refused = []


def open_index(folder, *others):
    """With SLOW, seconds late; with REFUSES, unable to read the first index but that of step 0."""
    if int(folder.name) == 0:
        return opened(folder, *others)
    time.sleep(float(os.environ.get("SLOW", "0")))
    if "REFUSES" in os.environ and refused in ([], [folder.name]):
        refused[:] = [folder.name]
        raise DamageError("published file is damaged", where=folder, found="what a test says")
    return opened(folder, *others)


if __name__ == "__main__":
    logging.getLogger().handlers.clear()  # of what was imported before `realm` could say how to log
    index_in_use.open_index = open_index
    sys.exit(main())
