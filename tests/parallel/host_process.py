"""`realm train` as one of several processes, slow or unable to open an index when told so."""

import os
import sys
import time

from realm_jax.cli.main import main
from realm_jax.errors import DamageError
from realm_jax.trainer import index_in_use

opened = index_in_use.open_index


def open_index(folder, *others):
    """As slow as SLOW seconds, and unable to read the index of step REFUSES."""
    if folder.name == os.environ.get("REFUSES"):
        raise DamageError("published file is damaged", where=folder, found="what a test says")
    if int(folder.name):
        time.sleep(float(os.environ.get("SLOW", "0")))
    return opened(folder, *others)


if __name__ == "__main__":
    index_in_use.open_index = open_index
    sys.exit(main())
