"""Workers: the processes that share the index builder's work; each has its own shards.

Shard s belongs to worker s % n. A worker that was killed is replaced by starting it again.
"""

import re
import shlex
from dataclasses import dataclass

from realm_jax.errors import UsageError
from realm_jax.storage.layout import RunDir

JOB = "index_builder"


@dataclass(frozen=True)
class Worker:
    """Worker `number` of `count`. Worker 0 also builds, checks and publishes the indexes."""

    number: int
    count: int

    @property
    def name(self) -> str:
        """Name of its lock, lease and heartbeat."""
        return f"{JOB}-{self.number}" if self.number else JOB

    def starts(self, size: int, shard: int) -> list[int]:
        """First index rows of the shards of this worker.

        Args:
          size: rows of the index, N.
          shard: rows of a shard.
        """
        return list(range(self.number * shard, size, self.count * shard))

    def command(self, run: RunDir) -> str:
        """The command that starts this worker."""
        worker = f"--worker={self.number}/{self.count}"
        return f"realm index --workdir={shlex.quote(str(run.workdir))} {worker}"


ONLY_WORKER = Worker(0, 1)


def parse_worker(text: str) -> Worker:
    """Reads `i/n`.

    Raises:
      UsageError: not two whole numbers with 0 <= i < n.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if found is None or not int(found[1]) < int(found[2]):
        raise UsageError(
            "--worker is not the number of a worker and the number of workers",
            where="--worker",
            expected="i/n with 0 <= i < n, such as 0/4 for the first of four builders",
            found=repr(text),
            fix="start n builders with --worker=0/n to --worker=(n - 1)/n; names such as "
            "--worker=a are no longer used",
        )
    return Worker(int(found[1]), int(found[2]))
