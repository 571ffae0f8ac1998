"""Points that fail on demand, and only then."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from realm_jax.errors import ConfigError
from realm_jax.storage.failpoints import VARIABLE, armed, failpoint, parse

PASS = (
    "from realm_jax.storage.failpoints import failpoint; "
    "[failpoint('a.b') for _ in range(3)]; print('past')"
)


def passes(spec: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, VARIABLE: spec}
    command = [sys.executable, "-c", PASS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("spec", ["a.b", "a.b:3", "a:2=kill", "a.b=kill"])
def test_the_variable_kills_a_process_at_its_point(spec):
    assert passes(spec).returncode == -signal.SIGKILL


@pytest.mark.parametrize("spec", ["", "other", "a.b:4", "a.c"])
def test_a_process_passes_all_other_points(spec):
    done = passes(spec)
    assert (done.returncode, done.stdout) == (0, "past\n"), done.stderr


def test_terminate_is_a_signal_that_a_job_may_answer():
    assert passes("a.b=terminate").returncode == -signal.SIGTERM


@pytest.mark.parametrize(("action", "code"), [("error", errno.EIO), ("full", errno.ENOSPC)])
def test_an_error_comes_once_at_the_nth_visit(action, code):
    with armed(f"file:2={action}") as point:
        failpoint("file.open")
        with pytest.raises(OSError, match=r"failpoint file\.write") as error:
            failpoint("file.write")
        failpoint("file.write")
    assert error.value.errno == code
    assert point.reached == 3
    failpoint("file.open")


def test_a_short_write_does_half_of_the_work_first():
    done = []
    with armed("file=short"), pytest.raises(OSError, match="No space left"):
        failpoint("file.write", half=lambda: done.append("half"))
    assert done == ["half"]


@pytest.mark.parametrize("spec", ["a b", "a:x", "a=explode", ":3", "a:1=kill=kill", "a" * 99])
def test_a_spec_that_means_nothing_is_refused(spec):
    with pytest.raises(ConfigError, match=VARIABLE):
        parse(spec)
