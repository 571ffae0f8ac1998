"""The demo's run, by hand: the same config as `realm demo`, without its measuring.

Command:  realm run --config=experiments/almanac.py --workdir=runs/almanac
Needs:    a built almanac under runs/demo/corpus, which `realm demo` makes in seconds
"""

from ml_collections import ConfigDict

from realm_jax.cli.demo_config import almanac_config


def get_config() -> ConfigDict:
    """See `realm_jax.cli.demo_config`."""
    return almanac_config("runs/demo/corpus")
