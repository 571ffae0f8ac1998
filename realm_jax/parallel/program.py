"""Named programs: the only place where the package calls `jax.jit`.

Each program that a job runs has a name, such as `realm/train`. `realm compile --step=all` compiles
all names for TPUs, and `tests/planning/program_names_test.py` compares that list with the source.
`benchmarks/rehearsal.py` compares it with the names that the jobs called (`called`).
"""

from collections.abc import Callable
from typing import Any

import jax

_called: set[str] = set()


class Program:
    """A jitted function with a name.

    Args:
      name: JOB/WHAT or WHAT, the same for each shape that it is compiled for.
      function: traced by JAX.
      options: arguments of `jax.jit`.
    """

    def __init__(self, name: str, function: Callable[..., Any], **options: Any):
        self.name = name
        self._jitted = jax.jit(function, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program; compiles it first for new shapes."""
        _called.add(self.name)
        return self._jitted(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Traces and lowers the program for arguments that may be abstract."""
        return self._jitted.lower(*args, **kwargs)


def called() -> list[str]:
    """Names of the programs that this process has called, sorted."""
    return sorted(_called)
