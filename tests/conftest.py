"""Eight virtual devices and checked array shapes for every test, before anything imports jax."""

import os

import jaxtyping

DEVICES = 8

_FLAGS = [
    os.environ.get("XLA_FLAGS", ""),
    f"--xla_force_host_platform_device_count={DEVICES}",
    "--xla_backend_optimization_level=0",  # tiny models: compiling is most of the time
]
os.environ["XLA_FLAGS"] = " ".join(_FLAGS)
os.environ["JAX_PLATFORMS"] = "cpu"
jaxtyping.install_import_hook("realm_jax", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402


def pytest_sessionstart():
    """A sharding test on one device proves nothing, so it may not pass silently there."""
    if jax.device_count() != DEVICES:
        pytest.exit(
            f"tests need {DEVICES} virtual CPU devices, jax has {jax.device_count()}: "
            "something imported jax before tests/conftest.py set XLA_FLAGS",
            returncode=1,
        )


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """The same program is compiled once in a test run, however many tests trace it."""
    folder = str(tmp_path_factory.mktemp("compiled"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # of processes that tests start
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The made-up land of `support.tiny_corpus`, written once."""
    from support import tiny_corpus

    return tiny_corpus.write_tiny_corpus(tmp_path_factory.mktemp("land"))


@pytest.fixture(scope="session")
def documented_run(tmp_path_factory, tiny):
    """The folder of a run with random weights that reads the long questions that docs show."""
    from support.finished_run import write_finished_run
    from support.tiny_corpus import tiny_config

    longer = {"lengths__query": 96, "lengths__passage": 64, "lengths__joint": 120}
    config = tiny_config(tiny.folder, model__positions=128, **longer)
    workdir = tmp_path_factory.mktemp("documented") / "run"
    write_finished_run(workdir, tiny, config)
    return workdir
