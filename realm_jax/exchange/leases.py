"""A reader's mark that keeps a writer's retention off what it reads, and that retention.

The two may race. A reader writes its lease first and looks for the manifest after; retention
deletes the manifest first and looks at the leases after, and puts the manifest back if one has
appeared. So at least one of them sees the other: what was opened under a lease stays.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from realm_jax.errors import DamageError
from realm_jax.exchange import commit, files
from realm_jax.exchange.layout import MANIFEST, RunDir, step_name, step_of
from realm_jax.failpoints import reach

SECONDS = 600.0  # a lease outlives its last renewal by this; far longer than clocks disagree


class Lease:
    """What one reader holds; one small file, overwritten whole. Its threads may share it.

    Args:
      run: the run folder.
      reader: a name that no other reader of this run has, like trainer-0.
      seconds: life of the lease after `hold` or `renew`.
      clock: wall time in seconds.
    """

    def __init__(
        self,
        run: RunDir,
        reader: str,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.time,
    ):
        self.path = run.leases / f"{reader}.json"
        self.seconds, self.clock = seconds, clock
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
            expires = self.clock() + self.seconds
            files.write_sealed(self.path, {"held": self.held, "expires": expires})

    def release(self) -> None:
        """Holds nothing any more."""
        with self._one_writer:
            self.held = {}
            files.delete_file(self.path)


def leased(
    run: RunDir, what: str, *, seconds: float = SECONDS, clock: Callable[[], float] = time.time
) -> set[int]:
    """Steps of `what` (a folder of the run, like snapshots) that some reader holds.

    Raises:
      DamageError: a lease younger than `seconds` that is torn; nobody knows what it holds.
    """
    held: set[int] = set()
    for name in files.list_names(run.leases):
        path = run.leases / name
        if path.suffix != ".json":
            continue
        try:
            lease = files.read_sealed(path)
        except DamageError:
            if path.stat().mtime + seconds > clock():
                raise
            continue
        if lease is not None and lease["expires"] > clock():
            held |= set(lease["held"].get(what, []))
    return held


def retain(
    run: RunDir, what: str, keep: int, *, clock: Callable[[], float] = time.time
) -> list[int]:
    """A writer's own retention: deletes its oldest steps, but none that is leased.

    Also finishes deletions and sweeps unfinished folders that a killed writer left, below the
    newest step. Only the writer of `what` may call it.

    Args:
      run: the run folder.
      what: the folder within the run: snapshots, published_index or checkpoints/STAGE.
      keep: newest steps to leave; at least 1.
      clock: wall time in seconds.

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


def _delete(run: RunDir, what: str, step: int, clock: Callable[[], float]) -> bool:
    """Deletes one step unless it is leased; the manifest goes first and may come back."""
    folder = run.root / what / step_name(step)
    if _may_be_leased(run, what, step, clock):
        return False
    manifest = files.read_bytes(folder / MANIFEST)
    files.delete_file(folder / MANIFEST)
    reach("retention.unlisted")
    if _may_be_leased(run, what, step, clock):
        if manifest is not None:
            files.write_bytes(folder / MANIFEST, manifest)
        return False
    files.delete_tree(folder)
    return True


def _may_be_leased(run: RunDir, what: str, step: int, clock: Callable[[], float]) -> bool:
    try:
        return step in leased(run, what, clock=clock)
    except DamageError:
        return True  # a torn lease may hold anything: wait until it is renewed or old
