"""A writer that another one has overtaken neither publishes its folder nor moves the pointer."""

import pytest
from etils import epath

from realm_jax.errors import RealmError
from realm_jax.storage import commit, files, integrity
from realm_jax.storage.layout import MANIFEST, POINTER, WRITER, step_name

OLD, STEP, NEWER = 10, 20, 30
FIELDS = {"kind": "thing"}


def write(folder):
    files.write_bytes(folder / "a.bin", b"first file")
    files.write_bytes(folder / "deep" / "b.bin", b"second file")


@pytest.fixture
def parent(tmp_path):
    parent = epath.Path(tmp_path) / "things"
    commit.publish(parent, OLD, write, FIELDS)
    return parent


@pytest.fixture
def folder(parent):
    return parent / step_name(STEP)


def assert_refused(parent, writing, still_allowed=lambda: None, found=None):
    with pytest.raises(commit.OvertakenError, match=found):
        commit.publish(parent, STEP, writing, FIELDS, still_allowed)
    assert commit.read_pointer(parent) == {"step": commit.latest(parent)}


def delete_file(folder):
    (folder / "deep" / "b.bin").unlink()


def truncate_file(folder):
    (folder / "a.bin").write_bytes(b"first")


def add_file(folder):
    (folder / "c.bin").write_bytes(b"third file")


def delete_folder(folder):
    files.delete_tree(folder)


@pytest.mark.parametrize("change", [delete_file, truncate_file, add_file, delete_folder])
def test_folder_with_other_files_than_were_written_is_not_published(parent, folder, change):
    assert_refused(parent, write, lambda: change(folder))
    assert not (folder / MANIFEST).exists()
    assert commit.publish(parent, STEP, write, FIELDS)  # the next attempt succeeds
    assert integrity.verify(folder) == []


def test_folder_that_was_deleted_while_it_was_written_is_not_published(parent, folder):
    """As by the retention of another writer; the files written since would be all of it."""

    def writing(folder):
        files.write_bytes(folder / "a.bin", b"first file")
        files.delete_tree(folder)
        files.write_bytes(folder / "deep" / "b.bin", b"second file")

    assert_refused(parent, writing, found=WRITER)
    assert commit.steps(parent) == [OLD]


def test_step_that_another_writer_published_meanwhile_is_not_changed(parent, folder):
    def other_publishes(_):
        commit.publish(parent, STEP, write, {**FIELDS, "writer": "other"})

    assert_refused(parent, other_publishes)
    assert integrity.read_verified(folder, "thing")["writer"] == "other"


def test_older_step_is_not_published_after_a_newer_one(parent, folder):
    def writing(folder):
        write(folder)
        commit.publish(parent, NEWER, write, FIELDS)

    assert_refused(parent, writing, found="step 30")
    assert commit.steps(parent) == [OLD, NEWER]
    assert commit.read_pointer(parent) == {"step": NEWER}


def test_pointer_is_read_again_just_before_it_moves(parent, folder):
    def publish_newer():
        if (folder / MANIFEST).exists() and not commit.is_published(parent / step_name(NEWER)):
            commit.publish(parent, NEWER, write, FIELDS)

    assert commit.publish(parent, STEP, write, FIELDS, publish_newer)
    assert commit.read_pointer(parent) == {"step": NEWER}


@pytest.mark.parametrize("allowed", [0, 1])
def test_process_that_lost_its_lock_does_not_publish(parent, folder, allowed):
    """It is asked before the manifest is written, and again before the pointer moves."""
    calls = []

    def still_allowed():
        calls.append((folder / MANIFEST).exists())
        if len(calls) > allowed:
            raise RealmError("another process has taken over")

    with pytest.raises(RealmError, match="taken over"):
        commit.publish(parent, STEP, write, FIELDS, still_allowed)
    assert calls == [False, True][: allowed + 1]
    assert commit.read_pointer(parent) == {"step": OLD}
    assert (folder / MANIFEST).exists() == bool(allowed)


def test_published_folder_does_not_name_its_writer(parent):
    assert files.list_names(parent) == [step_name(OLD), POINTER]
    assert files.list_names(parent / step_name(OLD)) == [MANIFEST, "a.bin", "deep"]
