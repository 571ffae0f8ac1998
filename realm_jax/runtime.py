"""What a process does once: logging, compiled programs, devices, the stop signal."""

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

from realm_jax.errors import RealmError

log = logging.getLogger(__name__)
UNUSED_DAYS = 30  # a compiled program that nobody read for as long is deleted
_WORTH_KEEPING = "0.2"  # seconds of compiling; jax keeps those of a second, and a start has many


def start(*, devices: int = 0, threads: int = 0, waits: bool = False) -> threading.Event:
    """Sets up a job; call it once, before jax does any work.

    Args:
      devices: virtual CPU devices to make; 0 leaves the devices as they are.
      threads: threads that CPU kernels may use; 0 leaves it to jax.
      waits: it works now and then, and needs not keep gigabytes that it has freed meanwhile.

    Returns:
      An event that SIGTERM and SIGINT set: finish the step, save, and leave. A second SIGINT raises
      KeyboardInterrupt.
    """
    _keep_freed_memory(_MUCH if waits else _ALL)
    if devices:
        _add_xla_flag(f"--xla_force_host_platform_device_count={devices}")
    if threads:
        os.environ.setdefault("NPROC", str(threads))
    start_unsaved()
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        _listen(stop)
    return stop


def device_problem() -> RealmError | None:
    """What keeps jax from its devices, in words for people; None if it has some."""
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the second: a platform without its plugin
        return RealmError(
            "jax finds no device to compute on",
            where=f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}",
            expected="a platform that this machine has, and that no other process holds",
            found=str(error).partition("\n")[0] or "none that is named there",
            fix="unset JAX_PLATFORMS to take what there is; `realm doctor` says what that is, and "
            "which extra (cuda, tpu) is missing",
        )
    return None


def start_unsaved() -> None:
    """Sets up a process that saves nothing: it is simply interrupted."""
    logging.basicConfig(
        level=logging.INFO,
        handlers=[_ToStderr()],
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
    )
    for noisy in ("absl", "jax", "orbax"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    _keep_compiled()


class _ToStderr(logging.StreamHandler[Any]):
    """Writes to what sys.stderr is at that moment: a progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _keep_compiled() -> None:
    """Has jax keep what it compiled, so that a second start need not wait for the compiler.

    The folder is jax's `JAX_COMPILATION_CACHE_DIR` where that is set, else one of the user's own
    below `XDG_CACHE_HOME`. jax keys each program by its text, flags, versions and kind of device,
    instruction sets of a CPU included, and compiles again what it cannot read.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home, "realm-jax", "compiled")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_unused(folder)
        (folder / ".writable").touch()
    except (OSError, RuntimeError) as error:  # the second: nobody's home
        log.warning(
            "compiled programs are not kept, every start compiles anew: %s; set "
            "JAX_COMPILATION_CACHE_DIR to a folder of yours",
            error,
        )
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    least = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", _WORTH_KEEPING)
    if "jax" in sys.modules:  # which reads the environment once, when it is imported
        config = sys.modules["jax"].config
        config.update("jax_compilation_cache_dir", str(folder))
        config.update("jax_persistent_cache_min_compile_time_secs", float(least))


def _forget_unused(folder: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for file in folder.glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):  # another process forgets it too
            used = file.stat()
            if max(used.st_atime, used.st_mtime) < oldest:
                file.unlink()


# Options of glibc's mallopt, from <malloc.h>, and two values of the first: bytes, and no limit.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_MUCH, _ALL = 2**31 - 1, -1


def _keep_freed_memory(most: int) -> None:
    """Has glibc keep what XLA frees, for the buffers of the next step.

    By default every large buffer of every CPU step is mapped anew, and the kernel clears its pages:
    a quarter of the processor time of a small model. Other C libraries know no `mallopt`.

    Args:
      most: `_MUCH` would not do for steps, for BERT-base's buffers are larger than that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, most)):
            mallopt(option, value)


def _listen(stop: threading.Event) -> None:
    def on_signal(number: int, _: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, on_signal)


def _add_xla_flag(flag: str) -> None:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
