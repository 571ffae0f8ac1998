"""Memory of one machine of each job, computed from the config."""

import jax
from ml_collections import ConfigDict

from realm_jax.models.modules import Modules
from realm_jax.planning.limits import (
    FINGERPRINT_BYTES,
    ID_BYTES,
    index_row_bytes,
    segment_bytes,
    segments,
)
from realm_jax.trainer.prepare import MODULES

_FLOAT32 = 4  # bytes
_STATE = 3  # arrays of the size of the params in a state: params and two moments


def host_bytes(config: ConfigDict, passages: int, vocabulary: int, hosts: int) -> dict[str, float]:
    """Bytes of the largest arrays that a machine holds at once.

    The trainer holds two indexes during a swap, and a restored state or the copy of a snapshot.
    The builder holds the vectors and the searcher of one segment; both hold the passage ids of all
    rows, and the builder fingerprints of all passages. Memory-mapped corpora are not
    counted: the system can drop their pages.

    Args:
      config: of the run.
      passages: N.
      vocabulary: V.
      hosts: machines of the trainer; each holds a part of an index of kind mesh, and of any index
        with search.placement=hosts.

    Returns:
      `trainer` and `builder`.
    """
    shapes = Modules(config.model, vocabulary, MODULES["qa"]).shapes
    params = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    index = passages * index_row_bytes(config)
    on_each = 0.0 if config.search.kind == "mesh" else 2 * index
    if config.search.placement == "hosts":
        on_each /= min(hosts, segments(passages, config))
    read = passages * config.model.embedding * _FLOAT32 / hosts
    loading = read if config.search.kind == "mesh" else 0.0
    return {
        "trainer": on_each + loading + passages * ID_BYTES + _STATE * _FLOAT32 * params,
        "builder": segment_bytes(passages, config) + passages * (ID_BYTES + FINGERPRINT_BYTES),
    }
