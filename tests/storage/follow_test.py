"""When a run has ended: also while its trainer continues it."""

import pytest

from realm_jax.storage import files, follow
from realm_jax.storage.layout import RunDir


@pytest.fixture
def run(tmp_path):
    follow.mark_end(RunDir(tmp_path), step=100)
    return RunDir(tmp_path)


def test_an_earlier_end_does_not_count_and_a_new_one_does(run):
    has_ended = follow.end_of(run, last_step=200)
    assert not has_ended()
    follow.mark_end(run, step=200)
    assert has_ended()
    assert follow.end_of(run, last_step=200)() and follow.end_of(run)()


def test_an_end_that_is_deleted_while_it_is_read_does_not_count(run, monkeypatch):
    has_ended = follow.end_of(run, last_step=200)
    read = files.read_bytes

    def read_after_deletion(path):
        follow.clear_end(run)
        return read(path)

    monkeypatch.setattr(files, "read_bytes", read_after_deletion)
    assert not has_ended()
