"""Gives all tests eight virtual CPU devices and checked array shapes.

This module runs before any test imports jax.
"""

import gc
import os
from pathlib import Path

import jaxtyping
from support.compiler_flags import quick_compilation

DEVICES = 8
LONGEST = ("faults", "parallel", "trainer")  # folders whose files take longest

_FLAGS = [
    os.environ.get("XLA_FLAGS", ""),
    f"--xla_force_host_platform_device_count={DEVICES}",
    quick_compilation(),
]
os.environ["XLA_FLAGS"] = " ".join(_FLAGS)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"  # broadcasting over axes must be explicit
# Processes that tests start import `support` too, for example in a config file.
_PATHS = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))
jaxtyping.install_import_hook("realm_jax", "beartype.beartype")
# A trace makes many small objects that stay; with the thresholds of Python, their collection takes
# a tenth of the time of tests that compile.
gc.set_threshold(100_000, 50, 100)

import jax  # noqa: E402
import pytest  # noqa: E402


def pytest_sessionstart():
    """Stops the session unless there are eight devices; on one, sharding tests prove nothing."""
    if jax.device_count() != DEVICES:
        pytest.exit(
            f"tests need {DEVICES} virtual CPU devices, jax has {jax.device_count()}: "
            "something imported jax before tests/conftest.py set XLA_FLAGS",
            returncode=1,
        )


def pytest_collection_modifyitems(items):
    """Runs the longest files first, so that all test processes end at about the same time."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    """Compiles each program only once per test session, also if several processes share it."""
    base = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    folder = str((base.parent if is_worker else base) / "compiled")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # for processes that tests start
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return Path(folder)


@pytest.fixture
def collect_garbage():
    """`gc.collect` that visits only objects made during the test: all others take seconds."""
    gc.freeze()
    yield gc.collect
    gc.unfreeze()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The synthetic corpus of `support.tiny_corpus`, written once per session."""
    from support import tiny_corpus

    return tiny_corpus.write_tiny_corpus(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def documented_run(tmp_path_factory, tiny):
    """Workdir of a run with random weights, whose lengths fit the questions in the docs."""
    from support.finished_run import write_finished_run
    from support.tiny_corpus import tiny_config

    longer = {"lengths__query": 96, "lengths__passage": 64, "lengths__joint": 120}
    config = tiny_config(tiny.folder, model__positions=128, **longer)
    workdir = tmp_path_factory.mktemp("documented") / "run"
    write_finished_run(workdir, tiny, config)
    return workdir
