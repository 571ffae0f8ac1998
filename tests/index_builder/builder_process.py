"""`realm index` with a lock that expires sooner, as a process of its own.

Arguments: the seconds until the lock expires, then those of `realm`.
"""

import sys
from functools import partial

from realm_jax.cli.main import main
from realm_jax.storage import locks

if __name__ == "__main__":
    locks.Lock = partial(locks.Lock, seconds=float(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
