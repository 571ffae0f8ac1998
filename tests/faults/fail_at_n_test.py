"""Each file operation of a publication fails once; readers see either the old or the new step.

Operation N fails, for N = 1, 2, ... until the publication has fewer operations. After each failure,
the step that a reader opens is intact, and a second call succeeds.
"""

import itertools

import pytest
from support.steps import KINDS, NEW, OLD

from realm_jax.artifacts.verify import check
from realm_jax.storage import commit, files, follow, leases, sealed
from realm_jax.storage.failpoints import armed
from realm_jax.storage.layout import RunDir

FAULT = "fail at N"
ACTIONS = [
    pytest.param("error", marks=pytest.mark.faults),
    pytest.param("full", marks=pytest.mark.faults),
    "short",
]
# All kinds of steps are published by the same code; the default tests take the smallest.
STEP_KINDS = [
    kind if kind == "export" else pytest.param(kind, marks=pytest.mark.faults) for kind in KINDS
]
MAX_OPERATIONS = 200  # a publication has a few dozen


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", STEP_KINDS)
def test_after_a_failed_publication_readers_see_the_old_or_the_new_step(
    tmp_path, kind, action, cases
):
    publish, assert_intact, folder = KINDS[kind]
    for n in itertools.count(1):
        run = RunDir(tmp_path / f"{n}")
        publish(run, OLD)
        try:
            with armed(f"file:{n}={action}"):
                publish(run, NEW)
            break
        except OSError as error:
            assert "failpoint file" in str(error)
        cases.append(n)
        seen = commit.latest(run.root / folder)
        assert seen in (OLD, NEW)
        assert_intact(run, seen)
        assert check(run.root)["problems"] == []
        publish(run, NEW)
        assert commit.latest(run.root / folder) == NEW
        assert_intact(run, NEW)
        assert n < MAX_OPERATIONS
    assert len(cases) > 10


@pytest.mark.parametrize("action", ACTIONS)
def test_after_a_failed_retention_all_listed_steps_are_intact(tmp_path, action, cases):
    publish, assert_intact, _ = KINDS["snapshot"]
    for n in itertools.count(1):
        run = RunDir(tmp_path / f"{n}")
        for step in (1, 2, 3):
            publish(run, step)
        try:
            with armed(f"file:{n}={action}"):
                leases.retain(run, "snapshots", keep=1)
            break
        except OSError:
            cases.append(n)
        for step in commit.steps(run.snapshots):
            assert_intact(run, step)
        leases.retain(run, "snapshots", keep=1)
        assert files.list_names(run.snapshots) == ["00000003", "LATEST.json"]
        assert n < MAX_OPERATIONS
    assert len(cases) >= 4


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", ["lease", "end"])
def test_after_a_failed_write_a_small_file_is_the_old_or_the_new_one(tmp_path, name, action, cases):
    for n in itertools.count(1):
        run = RunDir(tmp_path / f"{n}")
        lease = leases.Lease(run, "reader")
        lease.hold({"snapshots": [OLD]})
        try:
            with armed(f"file:{n}={action}"):
                if name == "lease":
                    lease.hold({"snapshots": [NEW]})
                else:
                    follow.mark_end(run, step=NEW)
            break
        except OSError:
            cases.append(n)
        assert leases.leased(run, "snapshots") in ({OLD}, {NEW})
        marked = sealed.read(run.end_marker)
        assert marked is None or marked["step"] == NEW
        assert n < MAX_OPERATIONS
    assert len(cases) >= 4
