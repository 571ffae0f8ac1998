"""What a process does once: logging, devices, the stop signal."""

import logging
import os
import signal
import sys
import threading


def start(*, devices: int = 0, threads: int = 0) -> threading.Event:
    """Sets up this process; call it once, before jax does any work.

    Args:
      devices: virtual CPU devices to make; 0 leaves the devices as they are.
      threads: threads that CPU kernels may use; 0 leaves it to jax.

    Returns:
      An event that SIGTERM and SIGINT set: finish the step, save, and leave.
    """
    if devices:
        _add_xla_flag(f"--xla_force_host_platform_device_count={devices}")
    if threads:
        os.environ.setdefault("NPROC", str(threads))
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        force=True,  # absl may have put its own handler there on import
    )
    for noisy in ("absl", "jax", "orbax"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: stop.set())
    return stop


def _add_xla_flag(flag: str) -> None:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
