"""One process of a job that only chooses indexes.

python index_process.py PORT PROCESSES PROCESS WORKDIR VIEW CONFIG REPLAY STEPS. VIEW is how process
1 sees the run folder; CONFIG, REPLAY and STEPS are JSON.
"""

import itertools
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from support.tiny_corpus import tiny_config

from realm_jax.parallel import hosts
from realm_jax.storage import commit
from realm_jax.storage.layout import RunDir
from realm_jax.trainer import index_manager, index_wait
from realm_jax.trainer.index_manager import IndexManager

CORPUS = "c0ffee"
DELAY = 3.0  # seconds after which process 1 sees what process 0 sees


def late(started, published, seen=()):
    """Process 1 sees new folders later than process 0, as on a network file system."""
    opened, corpus_of = index_manager.open_index, index_manager.corpus_of

    def open_index(*arguments):
        assert commit.is_published(arguments[0]), "opened before it is visible"
        return opened(*arguments)

    def is_published(folder):
        visible = time.monotonic() > started + DELAY or folder.name in seen
        return visible and published(folder)

    commit.is_published = is_published
    index_manager.corpus_of = lambda folder: corpus_of(folder) if is_published(folder) else None
    index_manager.open_index = open_index


def newest(started, published):
    """Process 1 first sees the newest index only, as if the others had been deleted."""
    late(started, published, seen=("00000004",))


def fast_clock(started, published):
    """The clock of process 1 runs a thousand times too fast."""
    index_wait.time = type("", (), {"monotonic": itertools.count(0, 1000).__next__})


def same(started, published):
    """Process 1 sees what process 0 sees."""


VIEWS = {view.__name__: view for view in (late, newest, fast_clock, same)}

if __name__ == "__main__":
    port, count, number, workdir, view, config, replay, steps = sys.argv[1:]
    hosts.join(f"127.0.0.1:{port}", int(count), int(number))
    if number == "1":
        VIEWS[view](time.monotonic(), commit.is_published)
    config = tiny_config(builder__poll_seconds=0.05, **json.loads(config))
    with hosts.membership():
        index = IndexManager(
            RunDir(workdir),
            config,
            {CORPUS}.__contains__,
            json.loads(replay),
            set,
            threading.Event(),
        )
        print("joined", flush=True)
        print("searched", [index.for_step(step).step for step in json.loads(steps)], flush=True)
        index.close()
