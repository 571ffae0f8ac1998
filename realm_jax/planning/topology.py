"""Devices of TPU slices that are not here, for the TPU compiler alone."""

import importlib.util
import os
from typing import Any

from realm_jax.errors import RealmError
from realm_jax.planning.chips import Slice

STACKS = "--default_thread_stack_size=8388608 --fibers_default_thread_stack_size=8388608"


def prepare() -> None:
    """Call before anything imports jax: this process computes nothing on a TPU, it only compiles.

    Without it jax would look for chips, and a second process that compiles would abort.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"  # reports are of the compiler, not of a file
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    # The compiler's own threads overflow their stacks on chained products of a v6e.
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    if "thread_stack_size" not in flags:
        os.environ["LIBTPU_INIT_ARGS"] = f"{flags} {STACKS}".strip()


def devices_of(place: Slice) -> list[Any]:
    """Described devices, one for each chip; arrays cannot be put on them.

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

    # Two cores of a v4 chip share its memory and work as one device; later chips are one anyway.
    chip = {"chip_config_name": "megacore"} if place.kind == "v4" else {}
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=place.name, **chip)
    except jax.errors.JaxRuntimeError as error:
        raise RealmError(
            "the TPU compiler does not know this topology",
            where=place.name,
            found=str(error).splitlines()[0],
        ) from error
    return list(described.devices)
