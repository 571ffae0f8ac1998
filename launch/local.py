"""Both jobs on this machine: the trainer here, the index builder in a second process.

Command:  python launch/local.py --config=experiments/wiki_sample.py --workdir=runs/wiki
"""

import sys

from realm_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
