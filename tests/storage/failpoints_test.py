"""Failpoints fail when armed, and only then."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from realm_jax.errors import ConfigError
from realm_jax.storage.failpoints import VARIABLE, armed, failpoint, parse

PROGRAM = (
    "from realm_jax.storage.failpoints import failpoint; "
    "[failpoint('a.b') for _ in range(3)]; print('finished')"
)


def run_with(spec: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, VARIABLE: spec}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("spec", ["a.b", "a.b:3", "a:2=kill", "a.b=kill"])
def test_environment_variable_kills_the_process_at_its_failpoint(spec):
    assert run_with(spec).returncode == -signal.SIGKILL


@pytest.mark.parametrize("spec", ["", "other", "a.b:4", "a.c"])
def test_process_passes_all_other_failpoints(spec):
    done = run_with(spec)
    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr


def test_terminate_sends_sigterm():
    assert run_with("a.b=terminate").returncode == -signal.SIGTERM


@pytest.mark.parametrize(("action", "code"), [("error", errno.EIO), ("full", errno.ENOSPC)])
def test_error_is_raised_once_at_the_nth_call(action, code):
    with armed(f"file:2={action}") as point:
        failpoint("file.open")
        with pytest.raises(OSError, match=r"failpoint file\.write") as error:
            failpoint("file.write")
        failpoint("file.write")
    assert error.value.errno == code
    assert point.reached == 3
    failpoint("file.open")


def test_short_write_does_half_of_the_work_first():
    done = []
    with armed("file=short"), pytest.raises(OSError, match="No space left"):
        failpoint("file.write", half=lambda: done.append("half"))
    assert done == ["half"]


@pytest.mark.parametrize("spec", ["a b", "a:x", "a=explode", ":3", "a:1=kill=kill", "a" * 99])
def test_invalid_specification_is_refused(spec):
    with pytest.raises(ConfigError, match=VARIABLE):
        parse(spec)
