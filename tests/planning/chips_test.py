"""Names of slices, and the values derived from them."""

import pytest

from realm_jax.errors import InputError
from realm_jax.planning.chips import CHIPS, known_slices, slice_of


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "accelerator"),
    [
        ("v4:4x4x4", 64, 16, "v4-128"),
        ("v5e:8x8", 64, 16, "v5litepod-64"),
        ("v5p:2x2x1", 4, 1, "v5p-8"),
        ("v6e:2x4", 8, 1, "v6e-8"),
        ("v5e:2x4", 8, 1, "v5litepod-8"),
    ],
)
def test_chips_hosts_and_accelerator_type_of_a_slice(name, chips, hosts, accelerator):
    parsed = slice_of(name)
    assert (parsed.chips, parsed.hosts, parsed.accelerator_type) == (chips, hosts, accelerator)
    assert parsed.name == name


@pytest.mark.parametrize("name", ["v4-128", "v5e:3x3", "v7:2x2", "", "v5e"])
def test_an_unknown_topology_is_refused_with_a_list_of_known_ones(name):
    with pytest.raises(InputError) as error:
        slice_of(name)
    for kind, chip in CHIPS.items():
        assert f"{kind}: {' '.join(chip.shapes)}" in str(error.value)


def test_the_closest_name_is_suggested():
    with pytest.raises(InputError, match=r"did you mean v5e:8x8\?"):
        slice_of("v5e-8x8")


def test_the_smallest_shape_of_each_chip_is_one_machine():
    for kind, chip in CHIPS.items():
        assert slice_of(f"{kind}:{chip.shapes[0]}").hosts == 1
    assert len(set(known_slices())) == len(known_slices())


def test_a_machine_of_eight_chips_has_the_memory_of_two_nodes():
    for kind in ("v5e", "v6e"):
        one, two = slice_of(f"{kind}:2x2"), slice_of(f"{kind}:2x4")
        assert (two.nodes, two.hosts) == (2, 1)
        assert two.host_bytes == 2 * one.host_bytes == 2 * CHIPS[kind].node_bytes
        assert slice_of(f"2x{kind}:2x4").hosts == 2
    assert slice_of("v5e:4x4").host_bytes == CHIPS["v5e"].node_bytes


def test_several_slices_have_all_their_chips():
    place = slice_of("2xv5e:8x8")
    assert (place.name, place.one_slice) == ("2xv5e:8x8", "v5e:8x8")
    assert (place.chips, place.hosts, place.slices) == (128, 32, 2)


@pytest.mark.parametrize("name", ["0xv5e:8x8", "xv5e:8x8", "2v5e:8x8", "2xv5e", "100xv5e:8x8"])
def test_an_invalid_number_of_slices_is_refused(name):
    with pytest.raises(InputError, match="unknown topology"):
        slice_of(name)
