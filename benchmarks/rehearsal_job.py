"""A `realm` command that writes which programs it called and its largest resident memory.

Command:  python benchmarks/rehearsal_job.py FILE.json VERB ...
"""

import json
import resource
import sys
from pathlib import Path

from realm_jax.cli.main import main

if __name__ == "__main__":
    code = main(sys.argv[2:])
    from realm_jax.parallel.program import called  # after `main` has set up JAX

    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(sys.argv[1]).write_text(json.dumps({"programs": called(), "resident_bytes": resident}))
    sys.exit(code)
