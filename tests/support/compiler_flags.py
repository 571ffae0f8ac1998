"""XLA flags that shorten compilation, which takes most of the time of tests with tiny models.

This module is imported before JAX.
"""

from importlib.metadata import version

# Emitters of fusions take half of the compilation time, and the division for threads of LLVM a
# tenth. JAX 0.11 lacks the first flag, and XLA ends the process at a flag that it does not know.
_OLDER = ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]


def quick_compilation() -> str:
    """The flags for the installed JAX, separated by spaces."""
    major, minor = map(int, version("jax").split(".")[:2])
    flags = ["--xla_backend_optimization_level=0"]
    return " ".join(flags + _OLDER * ((major, minor) < (0, 11)))
