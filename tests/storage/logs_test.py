"""Logs: one record per line, also after a line that was cut short."""

import os

import pytest
from etils import epath

from realm_jax.storage import files
from realm_jax.storage.logs import PART, Log, last_record, read_log


def test_append_adds_one_record_per_line(tmp_path):
    path = epath.Path(tmp_path) / "logs" / "it.jsonl"
    for number in range(3):
        Log(path).append({"number": number})
    assert path.read_text() == '{"number": 0}\n{"number": 1}\n{"number": 2}\n'


def test_line_that_was_cut_short_does_not_damage_the_next_record(tmp_path):
    path = epath.Path(tmp_path) / "it.jsonl"
    path.write_text('{"number": 0}\n{"num')
    Log(path).append({"number": 1})
    assert path.read_text() == '{"number": 0}\n{"num\n{"number": 1}\n'
    assert read_log(path) == [{"number": 0}, {"number": 1}]


@pytest.mark.parametrize("sync", [False, True])
def test_a_record_is_on_the_disk_before_append_returns_if_that_is_asked_for(
    tmp_path, monkeypatch, sync
):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    path = epath.Path(tmp_path) / "it.jsonl"
    for number in range(2):
        Log(path, sync=sync).append({"number": number})
    file, folder = (tmp_path / "it.jsonl").stat().st_ino, tmp_path.stat().st_ino
    assert synced == ([file, folder, file] if sync else [])


def test_append_does_not_read_the_log(tmp_path, monkeypatch):
    path = epath.Path(tmp_path) / "it.jsonl"
    path.write_text('{"number": 0}\n')

    def whole_file(_):
        raise AssertionError("the whole log was read")

    monkeypatch.setattr(files, "read_bytes", whole_file)
    Log(path).append({"number": 1})
    assert path.read_text() == '{"number": 0}\n{"number": 1}\n'


def test_last_record_is_read_from_the_end_of_the_log(tmp_path, monkeypatch):
    path = epath.Path(tmp_path) / "it.jsonl"
    assert last_record(path) is None
    path.write_text('{"number": 0}\n' * PART)
    monkeypatch.setattr(files, "read_bytes", None)  # it reads a whole file
    Log(path).append({"number": 1})
    assert last_record(path) == {"number": 1}
    with path.open("a") as file:
        file.write('{"num')
    assert last_record(path) == {"number": 1}
