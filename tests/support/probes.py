"""Probe queries for the snapshots that tests publish."""

import numpy as np
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.artifacts.snapshots import Snapshot, publish_snapshot, read_snapshot
from realm_jax.data.rows import Rows
from realm_jax.models.modules import Parameters
from realm_jax.storage.layout import RunDir, step_name


def random_probes(config: ConfigDict, count: int = 8) -> Rows:
    """`count` queries of random word pieces, of the query length of a config."""
    shape = (count, config.lengths.query)
    ids = np.random.default_rng(0).integers(5, 30, shape).astype(np.int32)
    return Rows(ids, np.ones(shape, bool), np.zeros(shape, np.int32))


def publish_with_probes(run: RunDir, step: int, config: ConfigDict, params: Parameters) -> Snapshot:
    """Publishes a snapshot with random probe queries, and reads it."""
    as_json, probes = config_lib.to_json(config, run.workdir), random_probes(config)
    publish_snapshot(run, step, params, as_json, {}, probes=probes)
    return read_snapshot(run.snapshots / step_name(step))
