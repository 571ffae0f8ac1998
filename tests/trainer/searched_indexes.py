"""Publishes small indexes, and asks an index manager for them as training steps do."""

import time

import numpy as np

from realm_jax.artifacts.published_index import publish_index
from realm_jax.retrieval.exact_searcher import ExactSearcher

CORPUS = "c0ffee"
TIMEOUT = 30.0  # seconds


def publish(run, *steps, corpus=CORPUS, width=8):
    for step in steps:
        vectors = np.random.default_rng(step).normal(size=(5, width)).astype(np.float32)
        parameters = {"w": np.full(3, step, np.float32)}
        rows, fields = np.arange(5), {"corpus_hash": corpus}
        publish_index(run, step, ExactSearcher(vectors), rows, vectors, parameters, fields, "{}")


def search(index, step):
    """The index step that `step` searches, after the same calls as in a training step."""
    found = index.for_step(step).step
    index.accept([index.offer(step + 1)])
    return found


def until(holds):
    """Waits until `holds()` is true."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
