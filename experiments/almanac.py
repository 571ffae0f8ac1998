"""The run of `realm demo`, without its evaluation.

Command:  realm run --config=experiments/almanac.py --workdir=runs/almanac
Data:     the almanac in runs/demo/corpus, which `realm demo` writes in seconds
Hours:    0.2 on two CPU cores
Expect:   the numbers that `realm demo` prints
"""

from ml_collections import ConfigDict

from realm_jax.cli.demo_config import almanac_config


def get_config() -> ConfigDict:
    """The config of `realm_jax.cli.demo_config`."""
    return almanac_config("runs/demo/corpus")
