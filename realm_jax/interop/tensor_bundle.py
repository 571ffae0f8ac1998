"""Reads a TensorFlow checkpoint (`NAME.index`, `NAME.data-*`) without TensorFlow.

The index is a LevelDB table: sorted keys in uncompressed blocks, each followed by its masked
CRC-32C. A value is a `BundleEntryProto`, which contains the data file and offset of an array
(tensorflow/core/protobuf/tensor_bundle.proto). Only dense numeric arrays are read: no strings and
no partitioned variables.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from realm_jax.errors import DamageError, InputError
from realm_jax.interop.lazy import LazyArray

_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_TRAILER = 5  # bytes after a block: compression type and checksum
# tensorflow/core/framework/types.proto
_DTYPES: dict[int, Any] = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    9: np.int64,
    14: ml_dtypes.bfloat16,
    19: np.float16,
}

Fields = dict[int, list[int | bytes]]  # a protocol-buffer message: field number -> values


def read_bundle(prefix: Path) -> dict[str, LazyArray]:
    """Arrays by variable name, read on demand; variables of other types are omitted.

    Args:
      prefix: the checkpoint's path without `.index`.

    Raises:
      DamageError: the index is not a table, a checksum is wrong, or a data file is too short.
    """
    index = prefix.with_name(f"{prefix.name}.index")
    entries = dict(_entries(index))
    shards = _number(_message(entries.pop(b"", b""), index), 1, 1)
    arrays = {}
    for key, value in entries.items():
        entry = _message(value, index)
        dtype = _DTYPES.get(_number(entry, 1, 0))
        if dtype is None or 7 in entry:  # 7: slices of a partitioned variable
            continue
        shard = _number(entry, 3, 0)
        data = prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")
        arrays[key.decode()] = _array(data, dtype, _shape(entry, index), _number(entry, 4, 0))
    return arrays


def _array(data: Path, dtype: Any, shape: tuple[int, ...], offset: int) -> LazyArray:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    size_on_disk = data.stat().st_size if data.is_file() else 0
    if size_on_disk < offset + size:
        raise DamageError(
            "a data file of the checkpoint is truncated",
            where=data,
            expected=f"at least {offset + size} bytes",
            found=f"{size_on_disk} bytes" if data.is_file() else "no such file",
        )

    def read() -> np.ndarray:
        flat = np.fromfile(data, dtype, size // np.dtype(dtype).itemsize, offset=offset)
        return flat.reshape(shape)

    return LazyArray(shape, read)


def _shape(entry: Fields, where: Path) -> tuple[int, ...]:
    shape = _message(_bytes(entry, 2), where)
    return tuple(_number(_message(dim, where), 1, 0) for dim in shape.get(2, []))


def _entries(index: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yields the (key, value) pairs of the table in order."""
    content = index.read_bytes()
    if len(content) < _FOOTER or content[-8:] != struct.pack("<Q", _MAGIC):
        raise DamageError(
            "the file is not the index of a TensorFlow checkpoint, or it is truncated",
            where=index,
            expected=f"{_MAGIC:#x} in its last 8 bytes",
            found=content[-8:].hex() or "an empty file",
        )
    footer = content[-_FOOTER:]
    _, at = _handle(footer, 0)  # skips the metaindex block
    handle, _ = _handle(footer, at)
    for _, value in _block(content, handle, index):
        yield from _block(content, _handle(value, 0)[0], index)


def _block(content: bytes, handle: tuple[int, int], where: Path) -> Iterator[tuple[bytes, bytes]]:
    start, size = handle
    block, trailer = content[start : start + size], content[start + size :][:_TRAILER]
    if len(trailer) < _TRAILER or trailer[0] != 0:
        raise DamageError(
            "the index of the checkpoint is damaged", where=where, expected="an uncompressed block"
        )
    found, promised = _crc32c(block + trailer[:1]), _unmasked(*struct.unpack("<I", trailer[1:]))
    if found != promised:
        raise DamageError(
            "the index of the checkpoint is damaged",
            where=where,
            expected=f"checksum {promised:#010x} of {size} bytes at {start}",
            found=f"{found:#010x}",
        )
    restarts = struct.unpack("<I", block[-4:])[0]
    end, at, key = size - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    start, at = _varint(content, at)
    size, at = _varint(content, at)
    return (start, size), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _message(content: bytes | int, where: Path) -> Fields:
    """Parses a protocol-buffer message; wire types 0 (varint), 1, 2 (bytes) and 5 (fixed)."""
    assert isinstance(content, bytes)
    fields: Fields = {}
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value: int | bytes
            value, at = _varint(content, at)
        elif wire in (1, 2, 5):
            size, at = (8 if wire == 1 else 4, at) if wire != 2 else _varint(content, at)
            value, at = content[at : at + size], at + size
        else:
            raise InputError(
                "not an entry of a TensorFlow checkpoint", where=where, found=f"wire type {wire}"
            )
        fields.setdefault(number, []).append(value)
    return fields


def _number(fields: Fields, number: int, default: int) -> int:
    value = fields.get(number, [default])[0]
    assert isinstance(value, int)
    return value


def _bytes(fields: Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def _crc32c(content: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in content:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _unmasked(stored: int) -> int:
    """Reverses LevelDB's masking of stored checksums (a rotation and an offset)."""
    rotated = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF
