"""Memory of a machine of each job, by hand: 320 bytes of a passage are in the index."""

import jax
import pytest

from realm_jax import config as config_lib
from realm_jax.models.modules import Modules
from realm_jax.planning.host_memory import host_bytes

SIZE, VOCABULARY, HOSTS = 1_000_000, 30_522, 4


def bytes_of(passages=SIZE, **changes):
    config = config_lib.load(None, {key.replace("__", "."): v for key, v in changes.items()})
    return host_bytes(config, passages, VOCABULARY, HOSTS)


def test_a_trainer_holds_a_state_of_three_arrays_per_param_and_two_indexes():
    names = ("embedder", "reader", "span_head")
    shapes = Modules(config_lib.default().model, VOCABULARY, names).shapes
    state = 3 * 4 * sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert bytes_of(0)["trainer"] == state
    assert bytes_of()["trainer"] == state + SIZE * (2 * 320 + 8)
    spread = {"search__placement": "hosts", "search__segment_passages": "100000"}
    assert bytes_of(**spread)["trainer"] == state + SIZE * (2 * 320 / HOSTS + 8)
    on_mesh = bytes_of(search__kind="mesh")["trainer"]  # the index is in device memory
    assert on_mesh == state + SIZE * (4 * 128 / HOSTS + 8)


@pytest.mark.parametrize("segments", [1, 4])
def test_a_builder_holds_one_segment_and_ids_and_fingerprints_of_all_passages(segments):
    found = bytes_of(search__segment_passages=str(SIZE // segments))["builder"]
    assert found == SIZE * ((4 * 128 + 320) / segments + 24)
