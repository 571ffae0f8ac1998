"""Recognises Git LFS pointers: small text files that stand for a large file."""

from pathlib import Path

from realm_jax.errors import InputError

_START = b"version https://git-lfs.github.com/spec/"


def require_no_lfs_pointer(path: Path) -> None:
    """Raises an InputError if the file is a Git LFS pointer; a missing file is not checked."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        if not file.read(len(_START)).startswith(_START):
            return
    raise InputError(
        "the file is a Git LFS pointer, not the file itself",
        where=path,
        expected="the content, which `git clone` leaves out without Git LFS",
        found=f"a text of {path.stat().st_size} bytes",
        fix=f"git -C {path.parent} lfs pull",
    )
