"""Set-up of a process: memory of CPU buffers, the compilation cache and signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

from realm_jax import runtime
from realm_jax.runtime import UNUSED_DAYS

_FAULTS = """
import ctypes, resource, sys
from realm_jax import runtime

libc, size = ctypes.CDLL(None), int(sys.argv[2])
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffer = libc.malloc(size)
    for offset in range(0, size, size // 100):
        ctypes.memset(buffer + offset, 1, 1)
    libc.free(buffer)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] != "not started":
    runtime.start(mostly_idle=sys.argv[1] == "mostly idle")
faults()
print(faults())
"""


def _faults_of_a_second_buffer(how: str, size: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, how, str(size)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has mallopt")
@pytest.mark.parametrize("size", [64 << 20, 3 << 30])  # steps of a small model and of BERT-base
def test_freed_buffers_are_reused_without_page_faults(size):
    assert _faults_of_a_second_buffer("started", size) < 10
    assert _faults_of_a_second_buffer("not started", size) > 20  # the default, to compare


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has mallopt")
def test_a_mostly_idle_job_returns_gigabytes_to_the_system():
    assert _faults_of_a_second_buffer("mostly idle", 64 << 20) < 10
    assert _faults_of_a_second_buffer("mostly idle", 3 << 30) > 20


_HITS = """
from realm_jax import runtime
runtime.start_interruptible()
import jax
from jax import monitoring

seen = []
monitoring.register_event_listener(lambda event, **_: seen.append(event))
jax.jit(lambda x: x * 3 + 1)(2.0)
print(seen.count("/jax/compilation_cache/cache_hits"))
"""


def _hits(**environment):
    kept = {key: value for key, value in os.environ.items() if "COMPILATION_CACHE" not in key}
    every = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _HITS],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, **every, **{key: str(value) for key, value in environment.items()}},
    )
    return int(done.stdout), done.stderr


def test_a_second_start_reads_compiled_programs_from_the_cache(tmp_path):
    assert _hits(XDG_CACHE_HOME=tmp_path)[0] == 0
    assert _hits(XDG_CACHE_HOME=tmp_path)[0] > 0
    assert (tmp_path / "realm-jax" / "compiled").stat().st_mode & 0o077 == 0


def test_the_configured_cache_folder_is_used(tmp_path):
    configured = tmp_path / "configured"
    _hits(XDG_CACHE_HOME=tmp_path / "home", JAX_COMPILATION_CACHE_DIR=configured)
    assert [*configured.glob("*-cache")]
    assert not (tmp_path / "home").exists()


def test_without_a_writable_cache_programs_are_compiled_with_a_warning(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    hits, stderr = _hits(XDG_CACHE_HOME=tmp_path / "file")
    assert hits == 0
    assert "no compilation cache" in stderr


def test_unused_compiled_programs_are_deleted(tmp_path):
    folder = tmp_path / "realm-jax" / "compiled"
    folder.mkdir(parents=True)
    for name, days in (("old-cache", UNUSED_DAYS + 1), ("recent-cache", UNUSED_DAYS - 1)):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (time.time() - days * 86400,) * 2)
    _hits(XDG_CACHE_HOME=tmp_path)
    assert not (folder / "old-cache").exists()
    assert (folder / "recent-cache").exists()


_BUSY = """
import time
from realm_jax import runtime

stop = runtime.start()
print("started", flush=True)
while not stop.is_set():
    time.sleep(0.01)
print("work in progress", flush=True)
time.sleep(60)
"""


# The tests themselves may run under `nohup`, and children inherit what is ignored.
_WITHOUT_NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"


def _busy_job(*before, first=""):
    job = subprocess.Popen(
        [*before, sys.executable, "-c", first + _BUSY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None and job.stderr is not None
    assert job.stdout.readline() == "started\n"
    return job


def test_a_closed_terminal_stops_a_job():
    with _busy_job(first=_WITHOUT_NOHUP) as job:
        job.send_signal(signal.SIGHUP)
        assert job.stdout.readline() == "work in progress\n"
        assert "SIGHUP: stopping" in job.stderr.readline()
        job.kill()


def test_a_job_with_nohup_continues_after_its_terminal_is_closed():
    with _busy_job("nohup") as job:
        job.send_signal(signal.SIGHUP)
        time.sleep(0.2)  # so that the signals do not arrive together
        job.send_signal(signal.SIGTERM)
        assert job.stdout.readline() == "work in progress\n"
        assert "SIGTERM: stopping" in job.stderr.readline()
        job.kill()


def test_a_stop_signal_is_answered_at_once_and_a_second_ctrl_c_interrupts():
    job = _busy_job()
    job.send_signal(signal.SIGINT)
    assert job.stdout.readline() == "work in progress\n"
    assert "SIGINT: stopping, after work in progress is saved" in job.stderr.readline()
    job.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in job.communicate(timeout=30)[1]


def test_a_run_on_a_gpu_is_told_how_it_repeats_bit_for_bit(monkeypatch, caplog):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    runtime.warn_if_bits_differ("cpu")
    assert not caplog.messages
    runtime.warn_if_bits_differ("gpu")
    named = caplog.messages[0].rpartition("XLA_FLAGS=")[2]
    caplog.clear()
    monkeypatch.setenv("XLA_FLAGS", named)
    runtime.warn_if_bits_differ("gpu")
    assert not caplog.messages
