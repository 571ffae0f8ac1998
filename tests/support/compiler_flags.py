"""XLA flags that shorten compilation, which takes most of the time of tests with tiny models.

This module is imported before JAX.
"""

from importlib.metadata import version

# The emitters of fusions take half of the compilation time. JAX 0.11 does not have the flag, and
# XLA ends the process at a flag that it does not know.
_OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false"


def quick_compilation() -> str:
    """The flags for the installed JAX, separated by spaces."""
    major, minor = map(int, version("jax").split(".")[:2])
    flags = ["--xla_backend_optimization_level=0"]
    return " ".join(flags + [_OLDER_EMITTERS] * ((major, minor) < (0, 11)))
