"""Set-up of a process: logging, compilation cache, devices, memory, stop signal."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
UNUSED_DAYS = 30  # compiled programs unused for this many days are deleted from the cache
# Programs that took at least this many seconds to compile are cached. The default of JAX, 1 s,
# leaves out most programs of a start.
_CACHE_FROM_SECONDS = "0.2"
_STOPPING = "%s: stopping, after work in progress is saved; a second Ctrl-C stops without saving"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the last: its terminal was closed
_GPU_REPEATS = "--xla_gpu_deterministic_ops=true"


def start(*, devices: int = 0, threads: int = 0, mostly_idle: bool = False) -> threading.Event:
    """Sets up a job; call it once, before JAX runs any program.

    Args:
      devices: number of virtual CPU devices; 0 keeps the real devices.
      threads: number of threads of CPU kernels; 0 keeps the default of JAX.
      mostly_idle: whether the job waits most of the time; it then returns large freed buffers to
        the operating system.

    Returns:
      The stop signal: an event that `STOP_SIGNALS` set. The job finishes its step, saves and
      exits. A second SIGINT raises KeyboardInterrupt. Under `nohup`, a closed terminal is ignored.
    """
    _keep_freed_memory(_TWO_GIB if mostly_idle else _UNLIMITED)
    if devices:
        _add_xla_flag(f"--xla_force_host_platform_device_count={devices}")
    if threads:
        os.environ.setdefault("NPROC", str(threads))
    start_interruptible()
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        _set_signal_handlers(stop)
    return stop


def realm_command(*arguments: object) -> list[str]:
    """The command of `realm` for a child process, which imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", "realm_jax.cli.main", *map(str, arguments)]


def warn_if_bits_differ(platform: str) -> None:
    """Logs how a resumed run repeats bit for bit, if its devices do not do so by default."""
    if platform == "gpu" and _GPU_REPEATS not in os.environ.get("XLA_FLAGS", ""):
        log.warning(
            "a run that is resumed on a GPU differs in the last bits from one that was not "
            "interrupted; for the same bits set XLA_FLAGS=%s",
            _GPU_REPEATS,
        )


def start_interruptible() -> None:
    """Sets up logging and the compilation cache of a command that SIGINT may simply interrupt."""
    logging.basicConfig(
        level=logging.INFO,
        handlers=[_ToStderr()],
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
    )
    for noisy in ("absl", "jax", "orbax"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    _set_compilation_cache()


class _ToStderr(logging.StreamHandler[Any]):
    """Writes to the current `sys.stderr`: a progress bar replaces it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _set_compilation_cache() -> None:
    """Turns on JAX's persistent compilation cache, so that a second start compiles less.

    The folder is `JAX_COMPILATION_CACHE_DIR` if that is set, otherwise a folder in
    `XDG_CACHE_HOME`. The cache key of JAX includes the program, its flags, versions and the device
    kind, with the instruction set of a CPU. Unreadable entries are compiled again.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home, "realm-jax", "compiled")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _delete_unused(folder)
        (folder / ".writable").touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        log.warning(
            "no compilation cache, so every start compiles all programs: %s; set "
            "JAX_COMPILATION_CACHE_DIR to a folder that you can write",
            error,
        )
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    variable = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    minimum = os.environ.setdefault(variable, _CACHE_FROM_SECONDS)
    if "jax" in sys.modules:  # it reads the environment when it is imported
        config = sys.modules["jax"].config
        config.update("jax_compilation_cache_dir", str(folder))
        config.update("jax_persistent_cache_min_compile_time_secs", float(minimum))


def _delete_unused(folder: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for file in folder.glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):  # another process deleted it
            times = file.stat()
            if max(times.st_atime, times.st_mtime) < oldest:
                file.unlink()


# Options of mallopt in <malloc.h> of glibc.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_TWO_GIB, _UNLIMITED = 2**31 - 1, -1  # values of _TRIM_THRESHOLD, in bytes


def _keep_freed_memory(trim_threshold: int) -> None:
    """Makes glibc keep buffers that XLA frees, and reuse them in the next step.

    By default, glibc maps each large buffer of each CPU step again, and the kernel clears its
    pages. That takes a quarter of the CPU time of a small model. Other C libraries lack `mallopt`.

    Args:
      trim_threshold: freed bytes at the top of the heap that are kept. Training needs `_UNLIMITED`:
        the buffers of BERT-base exceed two GiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, trim_threshold)):
            mallopt(option, value)


def _set_signal_handlers(stop: threading.Event) -> None:
    def on_signal(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
        # In a thread: this one may hold the locks of logging.
        threading.Thread(target=log.info, args=(_STOPPING, signal.Signals(number).name)).start()

    for name in handled_signals():
        signal.signal(name, on_signal)


def handled_signals() -> list[signal.Signals]:
    """`STOP_SIGNALS`, without SIGHUP if this process was started with `nohup`."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [name for name in STOP_SIGNALS if not (ignored and name == signal.SIGHUP)]


def _add_xla_flag(flag: str) -> None:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
