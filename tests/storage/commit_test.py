"""A folder is published once its manifest exists, and every damaged byte is detected."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from realm_jax.artifacts.snapshots import read_snapshot
from realm_jax.errors import DamageError, MismatchError
from realm_jax.storage import commit, files, integrity, sealed
from realm_jax.storage.appendable import FolderWriter, content_hash
from realm_jax.storage.layout import JOURNAL, MANIFEST, POINTER, RunDir, step_name, step_of

WRITER = Path(__file__).with_name("writer_process.py")


def write_two(folder):
    files.write_bytes(folder / "a.bin", b"first file " * 100)
    files.write_bytes(folder / "deep" / "b.bin", b"second file " * 100)


@pytest.fixture
def parent(tmp_path):
    parent = epath.Path(tmp_path) / "things"
    for step in (10, 20):
        assert commit.publish(parent, step, write_two, {"kind": "thing", "colour": "red"})
    return parent


@pytest.fixture
def folder(parent):
    return parent / step_name(20)


def test_published_folder_is_undamaged_and_has_its_manifest(folder):
    assert integrity.verify(folder) == []
    manifest = integrity.read_verified(folder, "thing")
    assert (manifest["step"], manifest["colour"]) == (20, "red")
    assert sorted(manifest["files"]) == ["a.bin", "deep/b.bin"]
    assert manifest["files"]["a.bin"]["bytes"] == 1100
    with pytest.raises(MismatchError, match=r"snapshot of step 20\n.*thing of step 20"):
        integrity.read_verified(folder, "snapshot")


def delete(path, _):
    path.unlink()


def empty(path, _):
    path.write_bytes(b"")


def cut(path, _):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path, _):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def grow(path, _):
    path.write_bytes(path.read_bytes() + b"\0")


def replace(path, other):
    path.write_bytes(other.read_bytes())


DAMAGES = [delete, empty, cut, flip, grow, replace]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["a.bin", "deep/b.bin"])
def test_every_damage_is_found_with_the_name_of_the_file(parent, folder, name, damage):
    other = folder / "a.bin" if name != "a.bin" else folder / "deep/b.bin"
    damage(folder / name, other)
    (problem,) = integrity.verify(folder)
    assert problem["file"] == name
    with pytest.raises(DamageError, match=name):
        integrity.read_verified(folder, "thing")
    assert integrity.verify(parent / step_name(10)) == []


@pytest.mark.parametrize("damage", [empty, cut, flip, grow])
def test_damaged_manifest_is_found_and_its_step_is_not_listed(parent, folder, damage):
    damage(folder / MANIFEST, None)
    if damage is grow:  # trailing white space does not change the parsed JSON
        (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:-1] + b"}")
    (problem,) = integrity.verify(folder)
    assert problem["file"] == MANIFEST
    with pytest.raises(DamageError, match=MANIFEST):
        integrity.read_verified(folder, "thing")
    assert commit.latest(parent) == 10


def test_manifest_of_another_step_is_found(parent, folder):
    files.write_bytes(parent / step_name(10) / "a.bin", b"other")
    (parent / step_name(10) / MANIFEST).unlink()
    commit.write_manifest(
        parent / step_name(10),
        {"kind": "thing", "step": 10},
        commit.measure(parent / step_name(10)),
    )
    replace(folder / MANIFEST, parent / step_name(10) / MANIFEST)
    assert [problem["file"] for problem in integrity.verify(folder)] == [MANIFEST]


def test_manifest_in_a_folder_of_another_step_is_refused(parent):
    shutil.copytree(parent / step_name(20), parent / step_name(30))
    with pytest.raises(DamageError, match=r"step 30\n.*step 20"):
        integrity.read_verified(parent / step_name(30), "thing")


def test_file_that_is_not_in_the_manifest_is_found(folder):
    files.write_bytes(folder / "deep" / "extra", b"x")
    assert [problem["file"] for problem in integrity.verify(folder)] == ["deep/extra"]


def test_folder_without_manifest_is_not_published(parent, folder):
    (folder / MANIFEST).unlink()
    assert commit.read_manifest(folder) is None
    assert commit.steps(parent) == [10]
    with pytest.raises(commit.NotPublishedError):
        integrity.read_verified(folder, "thing")


def test_manifest_is_parsed_once_per_verification(folder, monkeypatch):
    read, reads = sealed.read, []
    monkeypatch.setattr(
        sealed, "read", lambda path, **fields: (reads.append(path), read(path, **fields))[1]
    )
    integrity.read_verified(folder, "thing")
    assert reads == [folder / MANIFEST]


def test_folder_without_step_may_hold_other_published_folders(tmp_path):
    outer = epath.Path(tmp_path) / "20180101"  # a name of eight digits is not a step here
    write_two(outer)
    commit.write_manifest(outer, {"kind": "outer"}, commit.measure(outer))
    write_two(outer / "inner")
    assert [problem["found"] for problem in integrity.verify(outer)] == [
        "a file that is not in the manifest"
    ] * 2
    commit.write_manifest(outer / "inner", {"kind": "inner"}, commit.measure(outer / "inner"))
    assert integrity.verify(outer) == []
    flip(outer / "inner" / "deep" / "b.bin", None)
    assert [problem["file"] for problem in integrity.verify(outer)] == ["inner/deep/b.bin"]


def test_the_error_about_a_damaged_folder_names_what_repair_takes(tmp_path):
    """A step, or else the run that contains the folder."""
    run = RunDir(epath.Path(tmp_path))
    files.write_bytes(run.config, b"{}")
    for folder, repaired in (
        (run.segments / "s1", run.root),
        (run.builder / step_name(20) / "segment_0", run.root),
        (run.snapshots / step_name(20), run.snapshots / step_name(20)),
    ):
        write_two(folder)
        step = {} if step_of(folder.name) is None else {"step": 20}
        commit.write_manifest(folder, {"kind": "thing", **step}, commit.measure(folder))
        flip(folder / "a.bin", None)
        with pytest.raises(DamageError, match=f"realm check --repair {repaired}$"):
            integrity.read_verified(folder, "thing")


def test_step_may_not_hold_other_published_folders(parent, folder):
    shutil.copytree(parent / step_name(10), folder / "inner")
    assert {problem["expected"] for problem in integrity.verify(folder)} == {integrity.NO_FILE}


def test_journal_of_a_finished_folder_is_not_a_problem(tmp_path):
    folder = epath.Path(tmp_path) / "it"
    with FolderWriter(Path(folder), "thing", ("a.npy",), settings={"seed": 0}) as writer:
        writer.array("a.npy", np.int32).append(np.arange(3))
        writer.finish_shard(rows=3)
        kept = (folder / JOURNAL).read_bytes()
        manifest = writer.commit(rows=3)
    assert [*manifest["files"]] == ["a.npy"] and not (folder / JOURNAL).exists()
    (folder / JOURNAL).write_bytes(kept)  # as if killed between the manifest and this deletion
    assert integrity.verify(folder) == []
    assert integrity.read_sized(Path(folder), "thing", "build again") == manifest
    assert manifest["content_hash"] == content_hash(manifest["files"])


def test_publishing_again_keeps_the_first_and_repairs_the_pointer(parent, folder):
    (parent / POINTER).unlink()
    before = (folder / MANIFEST).read_bytes()
    assert not commit.publish(parent, 20, delete, {"kind": "thing", "colour": "blue"})
    assert (folder / MANIFEST).read_bytes() == before
    assert sealed.read(parent / POINTER) == {"step": 20}
    assert not commit.publish(parent, 10, delete, {"kind": "thing"})
    assert commit.latest(parent) == 20


@pytest.mark.parametrize("damage", [delete, empty, cut, flip])
def test_damaged_pointer_is_replaced_by_listing(parent, damage):
    damage(parent / POINTER, None)
    assert commit.latest(parent) == 20


def test_only_a_first_step_may_lack_the_pointer_without_a_warning(parent, caplog):
    """A reader can look between the manifest and the pointer of the first publication."""
    shutil.rmtree(parent / step_name(10))
    (parent / POINTER).unlink()
    assert commit.latest(parent) == 20
    assert "is missing" not in caplog.text
    commit.publish(parent, 30, write_two, {"kind": "thing"})
    (parent / POINTER).unlink()
    assert commit.latest(parent) == 30
    assert "is missing; listed the folder" in caplog.text


def test_pointer_to_a_missing_step_is_replaced_by_listing(parent):
    commit.write_pointer(parent, 999)
    assert commit.latest(parent) == 20


def test_other_names_are_not_steps(parent):
    for name in ("tmp", "20", "00000030.orbax-checkpoint-tmp", "00000040"):
        (parent / name).mkdir()
    assert commit.steps(parent) == [10, 20]
    assert commit.latest(parent) == 20
    assert commit.latest(parent / "nowhere") is None
    assert step_of(step_name(123_456_789)) == 123_456_789


@pytest.mark.parametrize("point", ["data", "manifest", "pointer"])
def test_killed_writer_leaves_the_old_or_the_new_step(tmp_path, point):
    run = RunDir(tmp_path)
    command = [sys.executable, str(WRITER), str(tmp_path), "1", "2", "5"]
    writer = subprocess.Popen([*command, point], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "READY\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()

    assert (run.snapshots / step_name(2)).exists()
    assert commit.steps(run.snapshots) == ([1, 2] if point == "pointer" else [1])
    assert commit.latest(run.snapshots) == 1
    assert read_snapshot(run.snapshots / step_name(1)).step == 1

    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert again.stdout == "DONE\n"
    assert commit.latest(run.snapshots) == 2
    snapshot = read_snapshot(run.snapshots / step_name(2))
    assert (snapshot.params["b"] == 2).all()
