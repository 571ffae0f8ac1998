"""REALM in JAX: a trainer that learns to retrieve from masked text, and its index builder.

`open` a finished run to ask it, to retrieve and to embed; `interop.load` other people's weights.
Importing this imports neither jax nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from realm_jax import interop
    from realm_jax.inference.arguments import AnyPath
    from realm_jax.inference.run import Run

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "interop", "open"]


def open(workdir: AnyPath, paths: Mapping[str, AnyPath] | None = None) -> Run:
    """A finished run, to ask, to retrieve and to embed with.

    Args:
      workdir: the run folder, as of `realm run --workdir`.
      paths: dotted config key -> path, for inputs that are elsewhere on this machine, as in
        `{"corpus.knowledge": "/data/wiki"}`.

    Raises:
      InputError: the run is not finished, or a key of `paths` is not that of an input.
      DamageError: names the file.
      MismatchError: index and corpus do not belong together.
    """
    from realm_jax.inference.run import Run

    return Run.open(workdir, paths or {})


def __getattr__(name: str) -> Any:
    if name == "Run":
        from realm_jax.inference.run import Run

        return Run
    if name == "interop":
        return import_module("realm_jax.interop")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
