"""The prefetch thread: which batches it builds before the training loop asks for them."""

import threading
import time

import pytest

from realm_jax.trainer.prefetch import AHEAD, Prefetcher

STOP = threading.Event()


@pytest.fixture
def built():
    return []


def prefetcher(built, last=9, **options):
    def build(step):
        built.append(step)
        return f"batch {step}"

    return Prefetcher(build, 0, last, **options)


def wait_until(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_batches_are_built_ahead_of_the_loop(built):
    batches = prefetcher(built)
    wait_until(lambda: len(built) == AHEAD + 1)  # one more waits for a place in the queue
    assert batches.get(0, STOP, {}) == "batch 0"
    wait_until(lambda: len(built) == AHEAD + 2)
    batches.close()
    assert built == [0, 1, 2, 3]


def test_the_batch_of_a_step_before_which_the_stage_may_end_is_built_when_asked_for(built):
    batches = prefetcher(built, may_end=lambda step: step % 2 == 0)
    for step in range(5):
        assert batches.get(step, STOP, {}) == f"batch {step}"
        last = step + (step % 2 == 0)
        wait_until(lambda last=last: max(built) >= last)
        time.sleep(0.05)
        assert max(built) == last
    batches.close()
    assert not batches._thread.is_alive()


def test_a_stage_that_ends_leaves_no_thread_that_waits(built):
    batches = prefetcher(built, may_end=lambda step: step == 2)
    wait_until(lambda: built == [0, 1])
    batches.close()
    assert not batches._thread.is_alive() and built == [0, 1]
