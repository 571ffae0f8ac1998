"""Reads `block_records.npy` of Google's REALM, a pickle of texts, without executing code in it."""

import json
import pickle
import tokenize
from pathlib import Path
from typing import Any

import numpy as np

from realm_jax.errors import DamageError, InputError
from realm_jax.interop.pickles import UNPICKLING_ERRORS, AllowedFunction

BLOCK_RECORDS, TEXTS = "block_records.npy", "blocks.jsonl"
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")


def convert_block_records(path: Path, to: Path) -> int:
    """Writes the texts as JSON lines, `{"id": row, "text": …}`, and returns their number.

    A pickle can execute arbitrary code. This reader only lets it build an array of texts. All
    texts are in memory at once. They have no titles.

    Raises:
      InputError: the pickle refers to or contains anything else.
      DamageError: the file is truncated.
    """
    texts = _texts(path)
    with to.open("w", encoding="utf-8") as lines:
        for number, text in enumerate(texts):
            try:
                decoded = text.decode() if isinstance(text, bytes) else text
            except UnicodeDecodeError as error:
                raise InputError(
                    "a block is not UTF-8", where=f"{path}, row {number}", found=error
                ) from error
            if not isinstance(decoded, str):
                raise InputError(
                    "a block is not a text",
                    where=f"{path}, row {number}",
                    expected="bytes or a string",
                    found=type(text).__name__,
                )
            lines.write(json.dumps({"id": number, "text": decoded}, ensure_ascii=False) + "\n")
    return len(texts)


def _texts(path: Path) -> list[Any]:
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0}
            header = read.get(version, np.lib.format.read_array_header_2_0)(file)
            found = _TextsOnly(file, path).load()
        except (*UNPICKLING_ERRORS, tokenize.TokenError, SyntaxError) as error:
            raise DamageError(
                "damaged block records", where=path, expected="a .npy of texts", found=error
            ) from error
    if not isinstance(found, _Array) or found.texts is None or len(header[0]) != 1:
        raise InputError("the file is not a list of texts", where=path, found=f"shape {header[0]}")
    return found.texts


class _Array:
    """Replaces the numpy array that the pickle builds."""

    __slots__ = ("texts",)

    def __init__(self) -> None:
        self.texts: list[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _version, _shape, _dtype, _fortran, texts = state
        self.texts = texts if isinstance(texts, list) else None


class _Dtype:
    """Replaces the array's dtype; its state is ignored."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


def _latin1(text: str, encoding: str) -> bytes:
    """Decodes bytes as pickles of protocol 2 store them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"expected latin1, found {encoding!r}")
    return text.encode("latin1")


class _TextsOnly(pickle.Unpickler):
    def __init__(self, file: Any, path: Path):
        super().__init__(file)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): "ndarray",
            ("numpy", "dtype"): AllowedFunction(lambda *_: _Dtype()),
            ("_codecs", "encode"): AllowedFunction(_latin1),
            **{(home, "_reconstruct"): AllowedFunction(lambda *_: _Array()) for home in _NUMPY},
        }
        if (module, name) not in known:
            raise InputError(
                "the pickle refers to something other than texts; nothing of it was run",
                where=self._path,
                found=f"{module}.{name}",
            )
        return known[module, name]
