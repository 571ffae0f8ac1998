"""Sealed files: JSON with a checksum of its content.

A reader detects a file that was cut short or altered, and a field that is missing or of another
type.
"""

import hashlib
import json
from typing import Any

from etils import epath

from realm_jax.errors import DamageError
from realm_jax.storage import files

SEAL = "checksum"
FieldType = type | tuple[type, ...]


def seal(content: dict[str, Any]) -> bytes:
    """JSON bytes of `content` with a checksum of it."""
    return json.dumps({**content, SEAL: checksum(content)}, indent=1, sort_keys=True).encode()


def unseal(data: bytes, where: object) -> dict[str, Any]:
    """The content of bytes that `seal` returned.

    Raises:
      DamageError: the bytes are cut short or altered.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamageError(
            "file is cut short",
            where=where,
            expected="sealed JSON",
            found=f"{len(data)} bytes: {error}",
        ) from error
    promised = content.pop(SEAL, None) if isinstance(content, dict) else None
    if promised is None or promised != checksum(content):
        raise DamageError(
            "file was altered",
            where=where,
            expected=f"{SEAL} {promised}",
            found=checksum(content),
        )
    return content


def write(path: epath.Path, content: dict[str, Any]) -> None:
    """Writes sealed JSON durably."""
    files.write_bytes(path, seal(content))


def read(path: epath.Path, **fields: FieldType) -> dict[str, Any] | None:
    """Reads a sealed file; None if it does not exist.

    Args:
      path: the file.
      fields: required fields and their types. The checksum shows that a file was not altered, not
        that this package wrote it.

    Raises:
      DamageError: the file is cut short or altered, or a field is missing, of another type or
        negative.
    """
    data = files.read_bytes(path)
    if data is None:
        return None
    content = unseal(data, path)
    require_fields(content, path, fields)
    return content


def require_fields(content: dict[str, Any], path: epath.Path, fields: dict[str, FieldType]) -> None:
    """Raises a DamageError if a field of the content of `path` is missing or of another type.

    Numbers are counts, steps or seconds, so a negative one is refused too.
    """
    for name, kind in fields.items():
        value = content.get(name)
        if not isinstance(value, kind) or (isinstance(value, int | float) and value < 0):
            raise DamageError(
                "file has other content than expected",
                where=path,
                expected=f"a field {name} of type {_name(kind)}, not negative if it is a number",
                found=repr(value),
            )


def _name(kind: FieldType) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(one.__name__ for one in kinds)


def checksum(content: Any) -> str:
    """SHA-256 of JSON content; independent of the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
