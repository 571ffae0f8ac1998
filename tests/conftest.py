"""Eight virtual devices and checked array shapes for every test, before anything imports jax."""

import os

import jaxtyping

DEVICES = 8

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
)
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


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The made-up land of `realm_jax.testing.fakes`, written once."""
    from realm_jax.testing import fakes

    return fakes.write_land(tmp_path_factory.mktemp("land"))
