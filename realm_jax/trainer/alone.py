"""One trainer for each run folder: a second one is refused before it writes anything."""

import contextlib
import time
from collections.abc import Iterator

from realm_jax.errors import RealmError
from realm_jax.exchange import files
from realm_jax.exchange.claims import Claim
from realm_jax.exchange.layout import RunDir
from realm_jax.parallel import hosts


@contextlib.contextmanager
def alone(run: RunDir) -> Iterator[None]:
    """Claims the run for this trainer, all processes of which may enter.

    Raises:
      RealmError: another trainer has it.
    """
    if not hosts.leads():
        yield
        return
    files.check_writable(run.root)
    claim = Claim(run.leases, "trainer")
    if not claim.take():
        raise _taken(run, claim)
    with claim.kept():
        yield


def _taken(run: RunDir, claim: Claim) -> RealmError:
    holder = claim.holder() or {}
    left = max(0.0, (holder.get("expires") or time.time()) - time.time())
    return RealmError(
        "another trainer is at work in this run folder",
        where=run.leases,
        expected="one trainer for each run folder",
        found=f"host {holder.get('host')}, process {holder.get('pid')}",
        fix="stop that one, or choose another --workdir; if its host is gone, its claim ends "
        f"in {left:.0f} s",
    )
