"""Describes devices of TPU slices to the TPU compiler, on a machine without TPUs."""

import importlib.util
import os
from typing import Any

from realm_jax.errors import RealmError
from realm_jax.planning.chips import Slice

STACKS = "--default_thread_stack_size=8388608 --fibers_default_thread_stack_size=8388608"


def prepare() -> None:
    """Sets environment variables for compiling without TPUs; call it before importing jax.

    Without them jax searches for TPUs, and a second process that compiles aborts.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"  # compile times would be those of the cache
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    # The stacks of the compiler's threads overflow on chained matrix products for v6e.
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    if "thread_stack_size" not in flags:
        os.environ["LIBTPU_INIT_ARGS"] = f"{flags} {STACKS}".strip()


def devices_of(target: Slice) -> list[Any]:
    """Returns one device description per chip; arrays cannot be put on them.

    Raises:
      RealmError: the TPU compiler is not installed, or does not know the slice.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise RealmError(
            "the TPU compiler is not installed",
            expected="package libtpu, of the version that jax asks for",
            found="none",
            fix="pip install -e '.[tpu]'",
        )
    import jax
    from jax.experimental import topologies

    # The two cores of a v4 chip share its memory and form one device, as later chips do.
    chip = {"chip_config_name": "megacore"} if target.kind == "v4" else {}
    try:
        described = topologies.get_topology_desc(
            platform="tpu", topology_name=target.one_slice, num_slices=target.slices, **chip
        )
    except jax.errors.JaxRuntimeError as error:
        raise RealmError(
            "the TPU compiler does not know this topology",
            where=target.name,
            found=str(error).splitlines()[0],
        ) from error
    return list(described.devices)
