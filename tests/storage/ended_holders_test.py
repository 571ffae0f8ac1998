"""The lock of a process that has ended on this machine can be acquired at once."""

import ast
import os
import shutil
import subprocess
import sys
import time

import pytest
from etils import epath

from realm_jax.storage import sealed
from realm_jax.storage.locks import Lock
from realm_jax.storage.process_identity import has_ended, identity

DEADLINE_SECONDS = 20.0
UNUSED_PID = 2**31 - 1


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path)


HOLD = "import sys; from etils import epath; from realm_jax.storage.locks import Lock\n"
HOLD += "assert Lock(epath.Path(sys.argv[1]), 'it').acquire()"


def test_lock_of_a_process_that_died_on_this_host_can_be_acquired(folder):
    subprocess.run([sys.executable, "-c", HOLD, folder], check=True, timeout=300)
    assert Lock(folder, "it").acquire()


def test_process_of_another_pid_namespace_is_not_judged(folder):
    """Its process id means another process here, or, as in this case, none."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    allowed = shutil.which("unshare") and not subprocess.call([*unshare, "true"])
    if not allowed:
        pytest.skip("this machine does not allow new PID namespaces")
    unused = "echo $(($(cat /proc/sys/kernel/pid_max) - 99)) > /proc/sys/kernel/ns_last_pid"
    command = [*unshare, "sh", "-c", f'{unused}; "$@"', "sh", sys.executable, "-c", HOLD, folder]
    subprocess.run(command, check=True, timeout=300)
    assert not Lock(folder, "it").acquire()
    stamped = (folder / "it.lock.0").stat().mtime - 61.0
    os.utime(folder / "it.lock.0", (stamped, stamped))
    assert Lock(folder, "it").acquire()


@pytest.mark.parametrize(
    ("differing", "judged"),
    [
        ({"started": 1}, True),
        ({"pid": UNUSED_PID}, True),
        ({"pid": UNUSED_PID, "pid_namespace": 1}, False),
        ({"pid": UNUSED_PID, "boot": "other"}, False),
    ],
)
def test_process_is_named_by_boot_namespace_id_and_start_time(folder, differing, judged):
    """A lock whose process id has since been given to this process can be acquired at once."""
    held = {**identity(), "seconds": 60.0, **differing}
    sealed.write(folder / "it.lock.0", held)
    assert Lock(folder, "it").acquire() == judged


def test_killed_process_that_was_not_waited_for_has_ended():
    child = subprocess.Popen(
        [sys.executable, "-c", "import realm_jax.storage.process_identity as p; print(p.identity())"
         "; import time; time.sleep(600)"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = ast.literal_eval(child.stdout.readline())
    assert not has_ended(found)
    child.kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not has_ended(found):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.communicate()
    assert has_ended(found)
