"""The mesh, shardings of params and batches, and configs that do not fit the devices."""

import logging

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from ml_collections import ConfigDict
from support.tiny_corpus import tiny_config

from realm_jax.errors import ConfigError
from realm_jax.models.modules import Modules
from realm_jax.parallel import sharding


def mesh(data, model, fsdp=1, replica=1):
    sizes = {"replica": replica, "data": data, "fsdp": fsdp, "model": model}
    return sharding.make_mesh(ConfigDict(sizes))


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((-1, 1), (1, 8, 1, 1)),
        ((-1, 4), (1, 2, 1, 4)),
        ((4, -1), (1, 4, 1, 2)),
        ((2, 1, -1), (1, 2, 4, 1)),
        ((1, 2, 2, -1), (2, 1, 2, 2)),
    ],
)
def test_one_mesh_size_can_be_all_remaining_devices(sizes, shape):
    assert tuple(mesh(*sizes).shape.values()) == shape


@pytest.mark.parametrize("sizes", [(3, 1), (-1, -1), (-1, 3), (4, 4), (2, 2), (2, 2, 3)])
def test_a_mesh_that_does_not_fit_is_refused_with_the_number_of_devices(sizes):
    with pytest.raises(ConfigError, match="8, the number of devices"):
        mesh(*sizes)


def test_named_axes_map_to_mesh_axes_by_the_table():
    two_by_four = mesh(2, 4)
    spec = sharding.partition_spec(two_by_four, ("layers", "hidden", "mlp"), (2, 16, 32))
    assert spec == PartitionSpec(None, "fsdp", "model")
    assert sharding.batch_sharding(two_by_four).spec == PartitionSpec(("replica", "data", "fsdp"))


def test_an_axis_that_is_not_divisible_is_replicated_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        spec = sharding.partition_spec(mesh(2, 4), ("vocabulary", "hidden"), (30, 16))
    assert spec == PartitionSpec(None, "fsdp")
    assert "'vocabulary' of size 30" in caplog.text


def test_every_axis_name_of_the_models_is_in_the_table():
    modules = Modules(tiny_config().model, 96, ("embedder", "reader", "span_head"))
    shardings = sharding.param_shardings(mesh(2, 4), modules.axes, modules.shapes)
    split = [one for one in jax.tree.leaves(shardings) if "model" in one.spec]
    assert len(split) > 20


def test_a_batch_that_does_not_divide_is_refused_with_a_size_that_does():
    with pytest.raises(ConfigError, match=r"stages\.qa\.batch[\s\S]*set it to 8"):
        sharding.check_batches(mesh(4, 2), {"stages.ict.batch": 12, "stages.qa.batch": 5})
    with pytest.raises(ConfigError, match="multiple of 8"):
        sharding.check_batches(mesh(2, 1, 2, 2), {"stages.ict.batch": 12})
    sharding.check_batches(mesh(1, 8), {"stages.qa.batch": 1})


def test_groups_that_do_not_fit_devices_and_batches_are_refused():
    config = tiny_config(stages__ict__steps=1, stages__ict__batch=16)
    assert sharding.packing_groups(mesh(4, 2), config) == 4
    config.mesh.groups = 8
    assert sharding.packing_groups(mesh(4, 2), config) == 8
    for wrong in (6, 32):
        config.mesh.groups = wrong
        with pytest.raises(ConfigError, match="a multiple of 4 that divides 16"):
            sharding.packing_groups(mesh(4, 2), config)


class _SliceDevice:
    """A device of a TPU slice, with the attributes that `mesh_utils` reads."""

    device_kind, platform, process_index = "cpu", "cpu", 0

    def __init__(self, number, slice_index):
        self.id, self.slice_index = number, slice_index


def test_only_the_replica_axis_crosses_slices():
    devices = [_SliceDevice(number, number // 4) for number in range(8)]
    sizes = ConfigDict({"replica": 2, "data": 2, "fsdp": 2, "model": 1})
    array = sharding.make_mesh(sizes, devices).devices
    assert [{d.slice_index for d in part.flat} for part in array] == [{0}, {1}]
    with pytest.raises(ConfigError, match="multiple of 2, the number of slices"):
        sharding.make_mesh(ConfigDict({**sizes, "replica": 1, "data": 4}), devices)


def test_each_device_receives_only_its_shard():
    four = mesh(2, 2, fsdp=2)
    whole = np.arange(32.0).reshape(4, 8)
    spec = NamedSharding(four, PartitionSpec("model", "fsdp"))
    [sharded] = sharding.shard_arrays([whole], [spec])
    np.testing.assert_array_equal(sharded, whole)
    assert {shard.data.shape for shard in sharded.addressable_shards} == {(2, 4)}


def test_arrays_are_gathered_by_one_program_for_all_publications():
    """A new one for each snapshot would compile every shape again, on all hosts."""
    first, second = (sharding.gather_program(mesh(2, 2, fsdp=2)) for _ in range(2))
    assert first is second
    spec = NamedSharding(mesh(2, 2, fsdp=2), PartitionSpec("model", "fsdp"))
    for value in (1.0, 2.0):
        [leaf] = sharding.shard_arrays([np.full((4, 8), value)], [spec])
        assert first(leaf).sharding.is_fully_replicated
    assert first._jitted._cache_size() == 1
