"""Probe queries for the snapshots that tests publish."""

import numpy as np
from ml_collections import ConfigDict

from realm_jax.data.rows import Rows


def random_probes(config: ConfigDict, count: int = 8) -> Rows:
    """`count` queries of random word pieces, of the query length of a config."""
    shape = (count, config.lengths.query)
    ids = np.random.default_rng(0).integers(5, 30, shape).astype(np.int32)
    return Rows(ids, np.ones(shape, bool), np.zeros(shape, np.int32))
