"""Why JAX does not use an NVIDIA GPU of this machine, for `realm doctor`."""

import os
import re
from importlib import util
from pathlib import Path

# Plugin of JAX -> version of CUDA, oldest driver that it runs with (NVIDIA's release notes).
_PLUGINS = {"jax_cuda13_plugin": (13, 580), "jax_cuda12_plugin": (12, 525)}


def gpu_problem(platforms: set[str], root: Path = Path("/")) -> str | None:
    """One or two sentences; None if JAX uses a GPU, or if neither a GPU nor JAX's CUDA is here.

    Args:
      platforms: of the devices that JAX uses.
      root: of the file system.
    """
    plugin = next((name for name in _PLUGINS if util.find_spec(name) is not None), None)
    devices = list(root.glob("dev/nvidia[0-9]*"))
    if "gpu" in platforms or (plugin is None and not devices):
        return None
    if plugin is None:
        return (
            "This machine has an NVIDIA GPU, but JAX has no CUDA: install the extra [cuda]. "
            f"With a driver before {_PLUGINS['jax_cuda13_plugin'][1]}, install jax[cuda12]."
        )
    return _reason(*_PLUGINS[plugin], _driver(root), bool(devices))


def _reason(cuda: int, oldest: int, driver: str | None, has_devices: bool) -> str:
    """Why a GPU is not used although JAX's CUDA is installed."""
    if driver is None:
        return (
            f"JAX's CUDA {cuda} is installed, but no NVIDIA driver is loaded: install driver "
            f"{oldest} or newer; start a container with --gpus=all."
        )
    if int(driver.split(".")[0]) < oldest:
        return (
            f"The NVIDIA driver {driver} is too old for CUDA {cuda}: install driver {oldest} or "
            "newer" + (", or jax[cuda12] instead of the extra [cuda]." if cuda == 13 else ".")
        )
    if not has_devices:
        return (
            f"The NVIDIA driver {driver} is loaded, but this process sees no /dev/nvidia0: start "
            "the container with --gpus=all, or the job with a GPU."
        )
    chosen = os.environ.get("JAX_PLATFORMS")
    if chosen and not {"cuda", "gpu"} & {*chosen.split(",")}:
        return f"JAX_PLATFORMS={chosen} keeps JAX from using the NVIDIA GPU: unset it."
    return "JAX does not use the NVIDIA GPU; its own message above says why."


def _driver(root: Path) -> str | None:
    """Version of the loaded driver; None if there is none."""
    path = root / "proc" / "driver" / "nvidia" / "version"
    found = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", path.read_text()) if path.exists() else None
    return found[1] if found else None
