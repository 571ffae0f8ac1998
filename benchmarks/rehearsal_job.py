"""A `realm` command that writes which programs it called and its largest resident memory.

Command:  python benchmarks/rehearsal_job.py FILE.json VERB ...

The file is written every second, because a process that loses another one exits at once.
"""

import json
import resource
import sys
import threading
import time
from pathlib import Path

from realm_jax.cli.main import main


def write(path: Path) -> None:
    """Writes the figures so far."""
    from realm_jax.parallel.program import called  # after `main` has set up JAX

    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"programs": called(), "resident_bytes": resident}))
    unfinished.replace(path)


def write_every_second(path: Path) -> None:
    """Runs in a thread of its own."""
    while True:
        time.sleep(1.0)
        if "realm_jax.parallel.program" in sys.modules:
            write(path)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    threading.Thread(target=write_every_second, args=(file,), daemon=True).start()
    code = main(sys.argv[2:])
    write(file)
    sys.exit(code)
