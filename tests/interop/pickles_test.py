"""Pickles are read without running code from them."""

import json
import pickle
import sys
import types
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

from realm_jax.errors import DamageError, InputError
from realm_jax.interop.block_records import convert_block_records
from realm_jax.interop.torch_file import read_torch

RAN = []


class Attack:
    """A pickle that would create a file if its code were run."""

    def __reduce__(self):
        return RAN.append, ("ran",)


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.clear()
    yield
    assert not RAN


class Stored:
    """An array as PyTorch pickles it: a function call with a separately stored buffer."""

    def __init__(self, key, array, size=None, offset=0, strides=None):
        self.key, self.array, self.size = key, array, size or array.size
        in_items = [step // array.itemsize for step in array.strides]
        self.offset, self.strides = offset, tuple(strides or in_items)

    def __reduce__(self):
        storage = Storage(self.key, self.size)
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (
            storage, self.offset, self.array.shape, self.strides, False, OrderedDict(),
        )  # fmt: skip


class Storage:
    def __init__(self, key, size):
        self.key, self.size = key, size


@pytest.fixture
def write_torch(tmp_path, monkeypatch):
    """Writes a state dict in PyTorch's format, without PyTorch."""
    names = {"torch": ["FloatStorage"], "torch._utils": ["_rebuild_tensor_v2"]}
    for module, members in names.items():
        made = types.ModuleType(module)
        for name in members:
            member = type(name, (), {"__module__": module})
            setattr(made, name, member)
        monkeypatch.setitem(sys.modules, module, made)

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if isinstance(thing, Storage):
                kind = sys.modules["torch"].FloatStorage
                return ("storage", kind, thing.key, "cpu", thing.size)
            return None

    def write(content, storages):
        path = tmp_path / "pytorch_model.bin"
        with zipfile.ZipFile(path, "w") as archive:
            with archive.open("archive/data.pkl", "w") as file:
                Pickler(file, protocol=2).dump(content)
            for key, array in storages.items():
                archive.writestr(f"archive/data/{key}", array.tobytes())
        return path

    return write


def test_tensors_are_read_with_offsets_and_strides(write_torch):
    flat = np.arange(12, dtype=np.float32)
    turned = flat.reshape(3, 4).T
    content = OrderedDict(
        whole=Stored("0", flat.reshape(3, 4)),
        turned=Stored("0", turned, 12),
        part=Stored("0", flat[8:], 12, offset=8),
    )
    found = read_torch(write_torch(content, {"0": flat}))
    np.testing.assert_array_equal(found["whole"].read(), flat.reshape(3, 4))
    np.testing.assert_array_equal(found["turned"].read(), turned)
    np.testing.assert_array_equal(found["part"].read(), flat[8:])


@pytest.mark.parametrize(
    "content", [b"PK\x05\x06PK\x03\x04archive/data.pkl\x80\x02}q\x00.", b"PK\x05\x06" + bytes(18)]
)
def test_a_damaged_archive_is_named(tmp_path, content):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    with pytest.raises(DamageError, match="damaged torch file") as error:
        read_torch(path)
    assert str(path) in str(error.value)


def test_an_archive_with_two_indexes_is_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as archive:
        for root in "ab":
            archive.writestr(f"{root}/data.pkl", b"")
    with pytest.raises(DamageError, match="2 files"):
        read_torch(path)


@pytest.mark.parametrize(
    "wrong", [{"offset": 9}, {"strides": (4, 5)}, {"offset": -1}, {"strides": (-4, 1)}]
)
def test_a_tensor_outside_its_storage_is_an_error(write_torch, wrong):
    flat = np.arange(12, dtype=np.float32)
    content = {"x": Stored("0", flat.reshape(3, 4), 12, **wrong)}
    with pytest.raises(DamageError, match="not inside its storage"):
        read_torch(write_torch(content, {"0": flat}))


def test_a_storage_of_the_wrong_size_is_an_error(write_torch):
    flat = np.arange(12, dtype=np.float32)
    found = read_torch(write_torch({"x": Stored("7", flat)}, {"7": flat[:-1]}))
    with pytest.raises(DamageError, match=r"archive/data/7[\s\S]*48 bytes[\s\S]*44 bytes"):
        found["x"].read()


def test_code_in_a_torch_file_is_refused_and_not_run(write_torch):
    with pytest.raises(InputError, match=r"nothing of it was run"):
        read_torch(write_torch({"x": Attack()}, {}))


def test_a_file_that_is_not_a_torch_file_is_refused(tmp_path, write_torch):
    path = tmp_path / "old.bin"
    path.write_bytes(pickle.dumps({"x": Attack()}))
    with pytest.raises(InputError, match=r"1\.6"):
        read_torch(path)
    with pytest.raises(InputError, match="state dict"):
        read_torch(write_torch({"epoch": 3}, {}))
    whole = write_torch({}, {})
    whole.write_bytes(whole.read_bytes()[:-10])
    with pytest.raises(InputError, match="truncated"):
        read_torch(whole)


TEXTS = ["Rome is a city.", "Ærø is an island.", 'Quotes " and\nlines.']


@pytest.mark.parametrize("encode", [str.encode, str])
def test_block_records_become_lines_in_the_same_order(tmp_path, encode):
    np.save(tmp_path / "b.npy", np.array([encode(t) for t in TEXTS], object), allow_pickle=True)
    assert convert_block_records(tmp_path / "b.npy", tmp_path / "b.jsonl") == 3
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert lines == [{"id": i, "text": text} for i, text in enumerate(TEXTS)]


def test_block_records_in_old_pickles_store_bytes_as_text(tmp_path):
    array = np.array([text.encode() for text in TEXTS], object)
    with (tmp_path / "b.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|O", "fortran_order": False, "shape": (3,)}
        )
        pickle.dump(array, file, protocol=2)
    assert convert_block_records(tmp_path / "b.npy", tmp_path / "b.jsonl") == 3
    assert json.loads((tmp_path / "b.jsonl").read_text().splitlines()[1])["text"] == TEXTS[1]


def test_code_in_block_records_is_refused_and_not_run(tmp_path):
    np.save(tmp_path / "b.npy", np.array([b"x", Attack()], object), allow_pickle=True)
    with pytest.raises(InputError, match="nothing of it was run"):
        convert_block_records(tmp_path / "b.npy", tmp_path / "b.jsonl")


def test_a_file_that_is_not_block_records_is_refused(tmp_path):
    def refused(content, error, match):
        np.save(tmp_path / "b.npy", content, allow_pickle=True)
        with pytest.raises(error, match=match):
            convert_block_records(tmp_path / "b.npy", tmp_path / "b.jsonl")

    refused(np.array([b"x", 3], object), InputError, "row 1")
    refused(np.array([b"\xff"], object), InputError, "UTF-8")
    refused(np.arange(3), DamageError, "texts")
    np.save(tmp_path / "b.npy", np.array([b"long" * 99] * 9, object), allow_pickle=True)
    content = (tmp_path / "b.npy").read_bytes()
    (tmp_path / "b.npy").write_bytes(content[:-30])
    with pytest.raises(DamageError, match="damaged"):
        convert_block_records(tmp_path / "b.npy", tmp_path / "b.jsonl")
