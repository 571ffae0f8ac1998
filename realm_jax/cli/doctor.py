"""`realm doctor`: checks this machine and prints the commands that install what is missing."""

import argparse
import os
import platform
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from realm_jax import __version__
from realm_jax.cli import extras
from realm_jax.cli.arguments import add_json
from realm_jax.cli.machine_errors import device_problem
from realm_jax.cli.nvidia import gpu_problem
from realm_jax.retrieval.searcher import available_kind

EXAMPLE = "realm doctor --json"
_GIB = 2**30
_NEEDED_DISK, _NEEDED_MEMORY = 1.0, 3.0  # GiB that `realm demo` needs
_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16")
_IMPORTED = ("jax", "flax", "optax", "orbax.checkpoint", "tokenizers", "sentencex")
TESTED = "Linux x86_64 with Python 3.11"  # by `.ci/run`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this verb."""
    add_json(parser)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Prints the state of this machine; exit code 1 if something prevents the demo."""
    needed, optional = _packages()
    broken = _broken_imports()
    report: dict[str, Any] = {
        "realm": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "tested": TESTED,
        "searcher": available_kind("scann"),
        "packages": {one: extras.version_of(one) for one in needed},
        "devices": _devices() if "jax" not in broken else [],
        "cores": os.cpu_count(),
        "cpu_features": _cpu_features(),
        "free_memory_gib": _free_memory(),
        "free_disk_gib": round(shutil.disk_usage(Path.cwd()).free / _GIB, 1),
        "extras": optional,
    }
    report["gpu_problem"] = gpu_problem({one.partition(":")[0] for one in report["devices"]})
    report["problems"] = _problems(report, broken)
    if not arguments.json:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(report)))
    for problem in report["problems"]:
        sys.stderr.write(f"{problem}\n")
    return {**report, "exit_code": 1 if report["problems"] else 0}


def _packages() -> tuple[list[str], dict[str, dict[str, Any]]]:
    """The required packages, and for each extra the missing ones and the command for them."""
    declared = extras.requirements()
    optional = {}
    for extra, wanted in sorted(declared.items()):
        lacking = extras.missing(wanted)
        install = extras.command(lacking) if lacking else None
        if extra:
            optional[extra] = {"missing": lacking, "install": install}
    return declared.get("", []), optional


_SEARCHERS = {"scann": ["scann"], "faiss": ["faiss"], "exact": []}


def _broken_imports() -> dict[str, str]:
    """Package -> error, for packages that cannot be imported."""
    broken = {}
    for name in (*_IMPORTED, *_SEARCHERS[available_kind("scann")]):
        try:
            import_module(name)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            broken[name] = f"{type(error).__name__}: {error}"
    return broken


def _devices() -> list[str]:
    import jax

    if device_problem() is not None:
        return []
    return [f"{device.platform}: {device.device_kind}" for device in jax.devices()]


def _cpu_features() -> list[str]:
    """The `_FEATURES` that the CPU has; empty without /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    flags = path.read_text(errors="replace").split() if path.exists() else []
    return [feature for feature in _FEATURES if feature in flags]


def _free_memory() -> float | None:
    """Available memory in GiB; None if unknown."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.exists() else []
    kib = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return round(kib[0] * 1024 / _GIB, 1) if kib else None


def _problems(report: dict[str, Any], broken: dict[str, str]) -> list[str]:
    """One sentence for each reason why `realm demo` cannot run."""
    problems = []
    lacking = extras.missing(list(report["packages"]))
    if lacking:
        problems += [f"Packages are missing: {extras.command(lacking)}"]
    problems += [f"{name} cannot be imported: {error}" for name, error in broken.items()]
    if not report["devices"] and "jax" not in broken:
        problems += ["JAX finds no device, not even a CPU: unset JAX_PLATFORMS and try again."]
    features = report["cpu_features"]
    if platform.machine() in ("x86_64", "AMD64") and features and "avx" not in features:
        problems += ["This CPU has no AVX, which jaxlib and ScaNN need."]
    memory = report["free_memory_gib"]
    if memory is not None and memory < _NEEDED_MEMORY:
        problems += [
            f"The demo needs {_NEEDED_MEMORY:.0f} GiB of memory; {memory} GiB are available."
        ]
    if report["free_disk_gib"] < _NEEDED_DISK:
        problems += [
            f"The demo needs {_NEEDED_DISK:.0f} GiB of disk; {report['free_disk_gib']} GiB are "
            f"free in {Path.cwd()}."
        ]
    return problems


def _lines(report: dict[str, Any]) -> list[str]:
    versions = ", ".join(
        f"{extras.name_of(one)} {found or 'MISSING'}" for one, found in report["packages"].items()
    )
    lines = [
        f"realm     {report['realm']}, Python {report['python']}, {report['machine']}",
        f"tested on {report['tested']}",
        f"searcher  {report['searcher']}, the default of this machine",
        f"packages  {versions or 'realm-jax is not installed with pip; versions are not checked'}",
        f"devices   {', '.join(report['devices']) or 'none'}",
        f"processor {report['cores']} cores, {' '.join(report['cpu_features']) or '?'}",
        f"free      memory {report['free_memory_gib']} GiB, disk {report['free_disk_gib']} GiB",
    ]
    if report["gpu_problem"]:
        lines += [f"gpu       {report['gpu_problem']}"]
    for extra, state in report["extras"].items():
        lines += [
            f"extra     [{extra}] "
            + (f"missing: {state['install']}" if state["missing"] else "installed")
        ]
    if not report["problems"]:
        lines += ["The demo can run: realm demo"]
    return lines
