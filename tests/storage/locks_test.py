"""Only one holds a claim, and what it leaves behind when it dies can be taken."""

import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from etils import epath
from support.tiny_corpus import tiny_config

from realm_jax.errors import RealmError
from realm_jax.storage import files
from realm_jax.storage.job_lock import alone
from realm_jax.storage.layout import RunDir
from realm_jax.storage.locks import Claim
from realm_jax.trainer import run as trainer

PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path):
    return epath.Path(tmp_path)


def test_one_holds_it_until_it_lets_go(folder):
    first, second = Claim(folder, "it"), Claim(folder, "it")
    assert first.take() and first.take() and not second.take()
    assert second.holder()["expires"] > 0
    first.release()
    assert second.holder() is None and second.take() and not first.take()
    assert len(files.list_names(folder)) == 1


def test_it_ends_by_itself_unless_renewed(folder):
    now = [0.0]
    first, second = (Claim(folder, "it", seconds=10.0, clock=lambda: now[0]) for _ in range(2))
    assert first.take()
    now[0] = 9.0
    first.renew()
    now[0] = 18.0
    assert not second.take()
    now[0] = 19.5
    assert second.take()


def wait_for(holds):
    until = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    assert holds()


@pytest.mark.parametrize("kind", [OSError, type("ErrorOfAnObjectStore", (Exception,), {})])
def test_a_renewal_that_fails_is_told_once_and_tried_again(folder, monkeypatch, caplog, kind):
    now, write, failures = [0.0], files.write_sealed, [kind("no route to the storage")] * 3
    first, second = (Claim(folder, "it", seconds=0.2, clock=lambda: now[0]) for _ in range(2))

    def unsteady(path, content):
        if failures:
            raise failures.pop()
        write(path, content)

    assert first.take()
    monkeypatch.setattr(files, "write_sealed", unsteady)
    with first.kept():
        wait_for(lambda: not failures)
        now[0] = 9.0
        wait_for(lambda: second.holder() is not None)
        assert not second.take() and not first.lost.is_set()
    [told] = [record.getMessage() for record in caplog.records]
    assert "it.claim cannot be renewed" in told and "no route to the storage" in told


def test_a_holder_that_came_too_late_learns_that_it_lost_it(folder):
    now = [0.0]
    first, second, third = (
        Claim(folder, "it", seconds=0.2, clock=lambda: now[0]) for _ in range(3)
    )
    assert first.take()
    first.assert_held()
    now[0] = 9.0
    assert second.take()
    with first.kept():
        wait_for(first.lost.is_set)
    with pytest.raises(RealmError, match=r"taken over[\s\S]*it\.claim[\s\S]*same command again"):
        first.assert_held()
    assert not third.take() and files.list_names(folder) == ["it.claim.1"]
    second.release()
    assert first.take()
    first.assert_held()


def test_of_many_threads_one_takes_it(folder):
    claims = [Claim(folder, "it") for _ in range(16)]
    taken = []
    threads = [threading.Thread(target=lambda c=c: taken.append(c.take())) for c in claims]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert taken.count(True) == 1


def test_a_holder_that_died_on_this_host_holds_nothing(folder):
    script = "import sys; from etils import epath; from realm_jax.storage.locks import Claim\n"
    script += "assert Claim(epath.Path(sys.argv[1]), 'it').take()"
    subprocess.run([sys.executable, "-c", script, folder], check=True, timeout=300)
    assert Claim(folder, "it").take()


def test_a_torn_claim_is_left_alone_while_it_is_young(folder):
    (folder / "it.claim.0").write_text("{")
    assert not Claim(folder, "it").take()
    assert Claim(folder, "it", clock=lambda: (folder / "it.claim.0").stat().mtime + 61.0).take()


def test_a_second_trainer_is_refused_before_it_writes(tiny, tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    monkeypatch.setattr(trainer, "alone", partial(alone, patience=0.0))
    with alone(run, "trainer", threading.Event()):
        before = files.list_files(run.root)
        with pytest.raises(RealmError, match="another trainer works on this run") as error:
            trainer.run(str(tmp_path), tiny_config(tiny.folder), threading.Event())
        assert "choose another --workdir" in str(error.value)
        assert files.list_files(run.root) == before
