"""Test process: publishes snapshots, and waits at a chosen point to be killed.

    python writer_process.py RUN FIRST LAST [KEEP] [data|manifest|pointer]

With a point, it prints READY before that part of the publication of LAST, then waits.
"""

import sys
import time

import numpy as np

from realm_jax.artifacts.snapshots import publish_snapshot
from realm_jax.storage import commit, files
from realm_jax.storage.layout import MANIFEST, POINTER, RunDir, step_name
from realm_jax.storage.leases import retain


def tree(step):
    """Parameters filled with the step, so that a mixture of two steps is detected."""
    return {"a": {"w": np.full((64, 64), step, np.float32)}, "b": np.full(1000, step, np.int32)}


def hang_before(point, last):
    """Makes the writer wait before it writes one small file of step `last`."""
    name = {"manifest": f"{step_name(last)}/{MANIFEST}", "pointer": POINTER}[point]
    write_bytes = files.write_bytes

    def hanging(path, data):
        if str(path).endswith(name) and f"{last}".encode() in data:
            print("READY", flush=True)
            time.sleep(60)
        write_bytes(path, data)

    files.write_bytes = hanging


def main(run, first, last, keep=2, point=None):
    run = RunDir(run)
    for step in range(first, last + 1):
        if step == last and point == "data":
            folder = run.snapshots / step_name(step)
            folder.mkdir(parents=True)
            files.write_bytes(folder / "half", b"written")
            print("READY", flush=True)
            time.sleep(60)
        elif step == last and point:
            hang_before(point, last)
        publish_snapshot(run, step, tree(step), f'{{"step": {step}}}', {"config_hash": "c"})
        retain(run, "snapshots", keep)
        assert commit.latest(run.snapshots) == step
    print("DONE", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), *sys.argv[5:])
