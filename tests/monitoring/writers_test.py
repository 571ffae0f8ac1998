"""Metric writers: their output is read back by independent code."""

import json
import struct

import pytest
from support.tiny_corpus import tiny_config

from realm_jax.monitoring.tensorboard import TensorBoard
from realm_jax.monitoring.terminal import Lines
from realm_jax.monitoring.writers import JsonLines, Writers, metric_writers
from realm_jax.storage.layout import RunDir

METRICS = {"loss": 1.5, "held_out_recall_at_5": 0.25, "index_step": 3, "state": "embedding"}


def crc32c(data):
    """CRC-32C (Castagnoli), bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(content):
    """The records of a TFRecord file; checks both checksums of each."""
    found = []
    while content:
        head, rest = content[:8], content[12:]
        (size,) = struct.unpack("<Q", head)
        assert struct.unpack("<I", content[8:12]) == (masked(head),)
        assert struct.unpack("<I", rest[size : size + 4]) == (masked(rest[:size]),)
        found.append(rest[:size])
        content = rest[size + 4 :]
    return found


def fields(message):
    """(number, value) of the fields of a protocol buffer; values are bytes or varints."""
    at, found = 0, []

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        size = {0: None, 1: 8, 5: 4}.get(key & 7, -1)
        if size is None:
            found.append((key >> 3, varint()))
            continue
        size = varint() if size < 0 else size
        found.append((key >> 3, message[at : at + size]))
        at += size
    return found


def events(folder):
    """(step, {tag: value}, session status) of each event in the files of a folder, in order."""
    found = []
    for path in sorted(folder.iterdir()):
        for frame in frames(path.read_bytes()):
            event = dict(fields(frame))  # 2 step, 5 summary, 7 session log
            scalars = {}
            for _, value in fields(event.get(5, b"")):
                parts = dict(fields(value))  # 1 tag, 2 simple value
                scalars[parts[1].decode()] = struct.unpack("<f", parts[2])[0]
            found.append((event.get(2, 0), scalars, dict(fields(event.get(7, b""))).get(1)))
    return found


def test_event_files_contain_every_number_under_its_stage(tmp_path):
    run = RunDir(tmp_path)
    writers = Writers("realm", [TensorBoard(run, "realm")], clock=lambda: 5.0)
    writers.set_step(11)
    writers.write(25, METRICS)
    writers.write(50, {"loss": 0.5})
    writers.close()
    version, start, *measured = events(tmp_path / "logs" / "tensorboard" / "realm")
    assert version[1] == {}
    assert start == (11, {}, 1)  # SessionLog.START: TensorBoard drops older events from step 11 on
    expected = {"realm/loss": 1.5, "realm/held_out_recall_at_5": 0.25, "realm/index_step": 3.0}
    assert measured == [(25, expected, None), (50, {"realm/loss": 0.5}, None)]


def test_each_process_writes_its_own_event_file(tmp_path):
    for loss in (2.0, 1.0):
        writer = TensorBoard(RunDir(tmp_path), "ict")
        writer.write({"stage": "ict", "step": 1, "time": 0.0, "loss": loss})
        writer.close()
    folder = tmp_path / "logs" / "tensorboard" / "ict"
    assert len(list(folder.iterdir())) == 2
    assert [e[1]["ict/loss"] for e in events(folder) if e[1]] == [2.0, 1.0]


def test_event_files_on_an_object_store_are_complete_after_closing(tmp_path, monkeypatch):
    from realm_jax.monitoring import tensorboard

    # Uses the object-store code path on local files.
    monkeypatch.setattr(tensorboard.files, "is_local", lambda path: False)
    monkeypatch.setattr(tensorboard, "register_writer_factory", lambda scheme, factory: None)
    monkeypatch.setattr("tensorboardX.record_writer.open_file", tensorboard._ObjectStoreFile.open)
    writer = TensorBoard(RunDir(tmp_path), "ict")
    for step in range(50):
        writer.write({"stage": "ict", "step": step, "time": 0.0, "loss": 1.0})
    writer.close()
    written = events(tmp_path / "logs" / "tensorboard" / "ict")
    assert [step for step, scalars, _ in written if scalars] == list(range(50))


def test_json_lines_contain_the_records(tmp_path):
    lines = JsonLines(RunDir(tmp_path).logs / "realm.jsonl")
    writers = Writers("realm", [lines], clock=lambda: 5.0)
    writers.write(25, METRICS)
    written = (tmp_path / "logs" / "realm.jsonl").read_text()
    assert json.loads(written) == {"stage": "realm", "step": 25, "time": 5.0, **METRICS}
    assert written.endswith("}\n")


def test_config_selects_the_writers(tmp_path):
    run = RunDir(tmp_path)
    few = metric_writers(run, tiny_config(report__writers=""), "ict")
    more = metric_writers(run, tiny_config(report__writers="tensorboard"), "ict")
    assert [type(writer) for writer in few] == [JsonLines]
    assert [type(writer) for writer in more] == [JsonLines, TensorBoard]
    for writer in more:
        writer.close()


def test_an_unknown_writer_is_refused():
    from realm_jax.errors import ConfigError

    with pytest.raises(ConfigError, match=r"report\.writers[\s\S]*tensorboard wandb"):
        tiny_config(report__writers="tensorbored")


def test_weights_and_biases_continues_its_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra [wandb] is not installed")
    from realm_jax.monitoring.weights_and_biases import WeightsAndBiases

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    ids = []
    for _ in range(2):
        writer = WeightsAndBiases(RunDir(tmp_path), "ict")
        ids.append(writer._run.id)
        writer.write({"stage": "ict", "step": 3, "time": 0.0, **METRICS})
        assert writer._run.summary["ict/loss"] == 1.5
        writer.close()
    assert ids[0] == ids[1]
    assert list((tmp_path / "logs" / "wandb").glob("offline-run-*/run-*.wandb"))


def test_log_line_of_a_record(caplog):
    record = {
        "stage": "realm",
        "step": 25,
        "time": 0.0,
        "gradient_norm": 2.0,
        "loss": 1.2345,
        "pieces_per_second": 12_345.6,
        "mfu": 0.4212,
        "index_step": 20,
        "staleness_steps": 4,
        "index_age_s": 200.0,
        "eta_s": 130.0,
    }
    with caplog.at_level("INFO"):
        Lines(100).write(record)
    [line] = caplog.messages
    assert line == (
        "realm 25/100 (2 min left): loss 1.23  gradient_norm 2  12,346 word pieces/s  MFU 42.1%  "
        "index of step 20 (4 steps, 3 min old)"
    )
