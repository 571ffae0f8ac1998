"""A reader's mark that keeps a writer's retention off what it reads, and that retention.

The two may race. A reader writes its lease first and looks for the manifest after; retention
deletes the manifest first and looks at the leases after, and puts the manifest back if one has
appeared. So at least one of them sees the other: what was opened under a lease stays.

The age of a lease is told by the storage, which stamps both the lease and a file that retention
writes beside it: the clocks of the machines may be wrong by hours.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from etils import epath

from realm_jax.errors import DamageError
from realm_jax.storage import commit, files
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import MANIFEST, RunDir, step_name, step_of

SECONDS = 600.0  # a lease outlives its last renewal by this


class Lease:
    """What one reader holds; one small file, overwritten whole. Its threads may share it.

    Args:
      run: the run folder.
      reader: a name that no other reader of this run has, like trainer-0.
      seconds: life of the lease after `hold` or `renew`.
    """

    def __init__(self, run: RunDir, reader: str, *, seconds: float = SECONDS):
        self.path = run.leases / f"{reader}.json"
        self.seconds = seconds
        self.held: dict[str, list[int]] = {}
        self._one_writer = threading.RLock()

    def hold(self, held: Mapping[str, Iterable[int]]) -> None:
        """Holds exactly these steps from now on, as in `{"published_index": [500, 1000]}`.

        Hold a step before opening it, together with the one still in use.
        """
        with self._one_writer:
            self.held = {what: sorted(steps) for what, steps in held.items()}
            self.renew()

    def renew(self) -> None:
        """Starts the lease's life again; call it several times per `seconds`."""
        with self._one_writer:
            files.write_sealed(self.path, {"held": self.held, "seconds": self.seconds})

    def release(self) -> None:
        """Holds nothing any more."""
        with self._one_writer:
            self.held = {}
            files.delete_file(self.path)


def leased(run: RunDir, what: str, *, clock: Callable[[], float] | None = None) -> set[int]:
    """Steps of `what` (a folder of the run, like snapshots) that some reader holds.

    Args:
      run: the run folder.
      what: for example `snapshots`.
      clock: seconds, as the storage stamps its files; None asks the storage.

    Raises:
      DamageError: a lease younger than `SECONDS` that is torn; nobody knows what it holds.
    """
    held: set[int] = set()
    paths = [run.leases / name for name in files.list_names(run.leases) if name.endswith(".json")]
    now = 0.0 if not paths else _storage_time(run, what) if clock is None else clock()
    for path in paths:
        try:
            lease = files.read_sealed(path, held=dict, seconds=(int, float))
            if lease is not None and path.stat().mtime + lease["seconds"] > now:
                held |= _steps(lease["held"].get(what, []), path)
        except DamageError:
            if path.stat().mtime + SECONDS > now:
                raise
        except FileNotFoundError:
            continue  # released meanwhile
    return held


def _steps(held: Any, where: epath.Path) -> set[int]:
    if isinstance(held, list) and all(isinstance(step, int) for step in held):
        return set(held)
    raise DamageError("lease is not one of ours", where=where, expected="steps", found=repr(held))


def _storage_time(run: RunDir, what: str) -> float:
    """By a file of its own for each `what`, which has one writer: two would rename each other's."""
    stamped = run.leases / f"clock_{what.replace('/', '_')}"
    files.write_bytes(stamped, b"")
    return float(stamped.stat().mtime)


def retain(
    run: RunDir, what: str, keep: int, *, clock: Callable[[], float] | None = None
) -> list[int]:
    """A writer's own retention: deletes its oldest steps, but none that is leased.

    Also finishes deletions and sweeps unfinished folders that a killed writer left, below the
    newest step. Only the writer of `what` may call it.

    Args:
      run: the run folder.
      what: the folder within the run: snapshots, published_index or checkpoints/STAGE.
      keep: newest steps to leave; at least 1.
      clock: see `leased`.

    Returns:
      The steps deleted.
    """
    parent = run.root / what
    published = commit.steps(parent)
    if not published:
        return []
    kept = set(published[-max(keep, 1) :])
    named = {step_of(name) for name in files.list_names(parent)} - {None}
    old = sorted(s for s in named if s is not None and s < published[-1] and s not in kept)
    return [step for step in old if _delete(run, what, step, clock)]


def _delete(run: RunDir, what: str, step: int, clock: Callable[[], float] | None) -> bool:
    """Deletes one step unless it is leased; the manifest goes first and may come back."""
    folder = run.root / what / step_name(step)
    if _may_be_leased(run, what, step, clock):
        return False
    manifest = files.read_bytes(folder / MANIFEST)
    files.delete_file(folder / MANIFEST)
    failpoint("retention.unlisted")
    if _may_be_leased(run, what, step, clock):
        if manifest is not None:
            files.write_bytes(folder / MANIFEST, manifest)
        return False
    files.delete_tree(folder)
    return True


def _may_be_leased(run: RunDir, what: str, step: int, clock: Callable[[], float] | None) -> bool:
    try:
        return step in leased(run, what, clock=clock)
    except DamageError:
        return True  # a torn lease may hold anything: wait until it is renewed or old
