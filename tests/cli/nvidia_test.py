"""`realm doctor` says why JAX does not use an NVIDIA GPU."""

import sys

import pytest

from realm_jax.cli.nvidia import gpu_problem

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes a file system with a driver and devices, and installs plugins of JAX."""

    def make(*plugins, driver="", devices=0):
        monkeypatch.syspath_prepend(str(tmp_path / "packages"))
        for name in plugins:
            (tmp_path / "packages" / name).mkdir(parents=True)
            (tmp_path / "packages" / name / "__init__.py").touch()
        (tmp_path / "dev").mkdir()
        for number in range(devices):
            (tmp_path / "dev" / f"nvidia{number}").touch()
        if driver:
            path = tmp_path / "proc" / "driver" / "nvidia" / "version"
            path.parent.mkdir(parents=True)
            path.write_text(driver)
        return tmp_path

    yield make
    sys.path_importer_cache.clear()


@pytest.mark.parametrize(
    ("plugins", "driver", "devices", "said"),
    [
        ([], "", 0, None),
        ([], CLOSED, 1, "JAX has no CUDA: install the extra [cuda]"),
        (["jax_cuda13_plugin"], "", 0, "no NVIDIA driver is loaded: install driver 580"),
        (["jax_cuda13_plugin"], CLOSED, 1, "driver 535.183.01 is too old for CUDA 13"),
        (["jax_cuda12_plugin"], CLOSED, 0, "sees no /dev/nvidia0"),
        (["jax_cuda13_plugin"], OPEN, 1, "its own message above says why"),
        (["jax_cuda12_plugin"], CLOSED, 2, "its own message above says why"),
    ],
)
def test_the_reason_is_named(machine, monkeypatch, plugins, driver, devices, said):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    found = gpu_problem({"cpu"}, machine(*plugins, driver=driver, devices=devices))
    assert found is None if said is None else said in found


def test_the_environment_variable_that_forbids_a_gpu_is_named(machine, monkeypatch):
    root = machine("jax_cuda13_plugin", driver=OPEN, devices=1)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert "unset it" in gpu_problem({"cpu"}, root)
    assert gpu_problem({"gpu"}, root) is None
