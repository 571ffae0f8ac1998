"""Leases of readers, and the retention of writers, which keeps leased steps.

A reader and retention may run at the same time. The reader first writes its lease, then reads the
manifest. Retention first deletes the manifest, then reads the leases; if a lease has appeared, it
writes the manifest back. So at least one of them sees the other, and a step that was opened under a
lease is not deleted.

The age of a lease is the difference of two timestamps of the storage (`storage_clock`): that of the
lease and that of a file that retention writes. So the clocks of the machines need not agree.

A lease protects what a living reader uses. What a run needs after its reader has ended, however
long ago, is `required` in `retain`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from realm_jax.errors import DamageError
from realm_jax.storage import commit, files, sealed
from realm_jax.storage.failpoints import failpoint
from realm_jax.storage.layout import MANIFEST, RunDir, step_name, step_of
from realm_jax.storage.renewal import renewed
from realm_jax.storage.storage_clock import modified, storage_time

SECONDS = 600.0  # a lease expires this long after its last renewal


class Lease:
    """The steps that one reader holds, in one small file. Threads of the reader may share it.

    Args:
      run: the run folder.
      reader: a name unique among the readers of this run, such as trainer-0.
      seconds: until the lease expires after `hold` and `renew`.
    """

    def __init__(self, run: RunDir, reader: str, *, seconds: float = SECONDS):
        self.path = run.leases / f"{reader}.json"
        self.seconds = seconds
        self.held: dict[str, list[int]] = {}
        self._one_writer = threading.RLock()

    def hold(self, held: Mapping[str, Iterable[int]]) -> None:
        """Holds exactly these steps from now on, for example `{"published_index": [500, 1000]}`.

        Hold a step before you open it, together with the one that is still in use.
        """
        with self._one_writer:
            self.held = {what: sorted(steps) for what, steps in held.items()}
            self.renew()

    def renew(self) -> None:
        """Postpones the expiry; call it several times per `seconds`."""
        with self._one_writer:
            sealed.write(self.path, {"held": self.held, "seconds": self.seconds})

    @contextlib.contextmanager
    def renewed(self) -> Iterator["Lease"]:
        """Renews the lease in a thread until the block ends; does not release it."""
        what = f"{self.path} expires {self.seconds:.0f} s after its last renewal"
        with renewed(self._renew_if_held, self.seconds, what):
            yield self

    def _renew_if_held(self) -> None:
        with self._one_writer:
            if self.held:
                self.renew()

    def release(self) -> None:
        """Holds no steps from now on."""
        with self._one_writer:
            self.held = {}
            files.delete_file(self.path)


def leased(run: RunDir, what: str, *, clock: Callable[[], float] | None = None) -> set[int]:
    """Steps of one folder of the run that some reader holds.

    Args:
      run: the run folder.
      what: the folder, for example `snapshots`.
      clock: the time of the storage in seconds; None reads it from a new file.

    Raises:
      DamageError: a lease younger than `SECONDS` is damaged, so its steps are unknown.
    """
    held: set[int] = set()
    paths = [run.leases / name for name in files.list_names(run.leases) if name.endswith(".json")]
    stamped = run.leases / f"clock_{what.replace('/', '_')}"
    now = 0.0 if not paths else storage_time(stamped) if clock is None else clock()
    for path in paths:
        try:
            lease = sealed.read(path, held=dict, seconds=(int, float))
            if lease is not None and modified(path) + lease["seconds"] > now:
                held |= _steps(lease["held"].get(what, []), path)
        except DamageError:
            if modified(path) + SECONDS > now:
                raise
        except FileNotFoundError:
            continue  # released since it was listed
    return held


def _steps(held: Any, where: epath.Path) -> set[int]:
    if isinstance(held, list) and all(isinstance(step, int) for step in held):
        return set(held)
    raise DamageError("lease is malformed", where=where, expected="steps", found=repr(held))


def retain(
    run: RunDir,
    what: str,
    keep: int,
    *,
    required: Iterable[int] = (),
    clock: Callable[[], float] | None = None,
) -> list[int]:
    """Deletes the oldest steps of a folder, except leased and required ones.

    Below the newest step, it also deletes unfinished folders and finishes interrupted deletions of
    a killed writer. Only the writer of the folder may call it.

    Args:
      run: the run folder.
      what: the folder: snapshots, published_index or checkpoints/STAGE.
      keep: number of newest steps to keep; at least 1.
      required: steps that are kept whether they are leased or not.
      clock: see `leased`.

    Returns:
      The deleted steps.
    """
    parent = run.root / what
    published = commit.steps(parent)
    if not published:
        return []
    kept = {*published[-max(keep, 1) :], *required}
    named = {step_of(name) for name in files.list_names(parent)} - {None}
    old = sorted(s for s in named if s is not None and s < published[-1] and s not in kept)
    return [step for step in old if delete_unless_leased(run, what, step, clock)]


def delete_unless_leased(
    run: RunDir, what: str, step: int, clock: Callable[[], float] | None = None
) -> bool:
    """Deletes one step unless it is leased; the manifest is deleted first, and may be restored.

    Only the writer of the folder may call it. Returns whether the step was deleted.
    """
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
        return True  # a damaged lease may hold any step: wait until it is renewed or has expired
