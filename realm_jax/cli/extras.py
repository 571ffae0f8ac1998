"""Optional packages: which are missing, and the command that installs them."""

import re
import shlex
import sys
from importlib import metadata, util

from packaging.requirements import Requirement

from realm_jax.errors import RealmError

PROJECT = "realm-jax"
_EXTRA = re.compile(r"""extra == ["']([\w-]+)["']""")


def requirements() -> dict[str, list[str]]:
    """Extra -> requirements of the installed package on this platform; "" has the required ones.

    Empty if the package was never installed.
    """
    found: dict[str, list[str]] = {}
    try:
        declared = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        declared = []
    for line in declared:
        one, extras = Requirement(line), _EXTRA.findall(line)
        extra = extras[0] if extras else ""
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            one.marker = None
            found.setdefault(extra, []).append(str(one))
    return found


def name_of(requirement: str) -> str:
    """`jax` of `jax[tpu]>=0.10`."""
    return re.split(r"[^\w.-]", requirement)[0]


def version_of(requirement: str) -> str | None:
    """The installed version of a requirement's package; None if it is not installed."""
    try:
        return metadata.version(name_of(requirement))
    except metadata.PackageNotFoundError:
        return None


def missing(wanted: list[str]) -> list[str]:
    """The requirements that are not installed, or whose version is too old.

    Extras of other packages, like `jax[cuda13]`, are recognised by the plugins they install.
    """
    return [one for one in wanted if not (_is_recent(one) and _has_plugins(one))]


def _is_recent(requirement: str) -> bool:
    found, least = version_of(requirement), re.search(r">=([\d.]+)", requirement)
    return found is not None and (least is None or _numbers(found) >= _numbers(least[1]))


def _numbers(version: str) -> list[int]:
    """[1, 4] of 1.4, of 1.4.0 and of 1.4rc1."""
    release = re.match(r"[\d.]*\d", version)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _has_plugins(requirement: str) -> bool:
    """Whether a plugin of this extra is installed; of `jax[cuda13]`, also that of CUDA 12."""
    cuda = ("jax_cuda13_plugin", "jax_cuda12_plugin")
    plugins = {"jax[tpu]": ("libtpu",), "jax[cuda13]": cuda}
    wanted = plugins.get(requirement.partition("]")[0] + "]")
    return wanted is None or any(util.find_spec(name) is not None for name in wanted)


def require(extra: str, needed: list[str], problem: str) -> None:
    """Raises a RealmError if packages of an extra are missing.

    Args:
      extra: name in setup.py.
      needed: its packages, for the message, and for a package that was never installed.
      problem: first line of the message.
    """
    lacking = missing(requirements().get(extra, needed))
    if lacking:
        raise RealmError(
            problem,
            expected=", ".join(needed),
            found=f"no {', '.join(lacking)}",
            fix=command(lacking),
        )


def command(wanted: list[str]) -> str:
    """The pip command that installs `wanted` for this Python."""
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])
