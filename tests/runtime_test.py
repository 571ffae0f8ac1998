"""What a process does once."""

import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
import numpy as np
from realm_jax import runtime

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(64 << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "started":
    runtime.start()
faults()
print(faults())
"""


def _faults_of_a_second_buffer(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_a_freed_buffer_serves_again_without_page_faults():
    assert _faults_of_a_second_buffer("started") < 10
    assert _faults_of_a_second_buffer("not started") > 20  # else the test above shows nothing
