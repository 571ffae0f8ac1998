"""Errors that the machine or its settings cause: what is wrong, and what to change."""

import errno
import os
import re
import sys

from realm_jax.errors import RealmError

KINDS = (OSError, RuntimeError, AssertionError, ValueError, MemoryError)


def problem_of(error: Exception) -> RealmError | None:
    """The error to show in place of one of `KINDS`; None if the program may be at fault."""
    if isinstance(error, OSError):
        return _system_problem(error)
    problem = _variable_problem(error) or _limit_problem(error)
    if problem is None and "jax" in sys.modules and not isinstance(error, ValueError):
        return device_problem()
    return problem


def _system_problem(error: OSError) -> RealmError:
    """A RealmError for a full disk, a missing permission, a limit or a file instead of a folder."""
    from realm_jax.storage import files  # here: it imports NumPy, which takes long

    permission = "give this user permission to read the input, or choose a folder to write into"
    full = "free disk space, then run the same command to resume"
    fixes = {
        **dict.fromkeys(files.FULL, full),
        errno.EACCES: permission,
        errno.EPERM: permission,
        errno.EMFILE: "raise the limit of open files, as by `ulimit -n 4096`",
        errno.EROFS: "choose a folder with write permission",
        errno.EEXIST: "choose another folder: a file has this name",
        errno.ENOTDIR: "choose another folder: a file has this name",
    }
    problem = error.strerror or str(error) or type(error).__name__
    fix = None if error.errno is None else fixes.get(error.errno)
    return RealmError(problem, where=error.filename, fix=fix)


def _variable_problem(error: Exception) -> RealmError | None:
    """The error about an environment variable that JAX refuses; None if `error` is another one."""
    message = str(error).partition("\n")[0]
    flags = re.findall(r"jax_[a-z0-9_]+", message.lower())
    if "Disallowed" in message and "transfer" in message:
        flags += ["jax_transfer_guard"]
    named = [name for name in os.environ if name.lower().startswith(tuple(flags))] if flags else []
    if not named:
        return None
    return RealmError(
        "JAX refuses the value of an environment variable",
        where=", ".join(f"{name}={os.environ[name]}" for name in named),
        expected="a value that JAX accepts and that allows the programs of REALM",
        found=message[:200],
        fix=f"unset {' '.join(named)}",
    )


def _limit_problem(error: Exception) -> RealmError | None:
    """The error about memory or threads that this process lacks; None if `error` is another one."""
    message = str(error).partition("\n")[0]
    if isinstance(error, MemoryError) or message.startswith("RESOURCE_EXHAUSTED: Out of memory"):
        return RealmError(
            "out of memory",
            found=message[:300],
            fix="end other programs, or change what docs/troubleshooting.md lists under "
            "'Out of memory'; then run the same command again",
        )
    if "can't start new thread" in message:
        return RealmError(
            "this process cannot start another thread",
            found=message[:300],
            fix="raise the limit of processes (`ulimit -u`, or that of the container) or of memory "
            "(`ulimit -v`), then run the same command again",
        )
    return None


def device_problem() -> RealmError | None:
    """The error that keeps JAX from using a device; None if it has one."""
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError: the platform has no plugin
        return RealmError(
            "JAX finds no device",
            where=f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}",
            expected="a platform of this machine that no other process uses",
            found=str(error).partition("\n")[0] or "no such platform",
            fix="unset JAX_PLATFORMS to use any device; `realm doctor` lists the devices and the "
            "missing extras (cuda, tpu)",
        )
    return None
