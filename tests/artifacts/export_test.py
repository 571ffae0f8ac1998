"""The newest export has what was trained last, whatever its number of steps."""

import numpy as np
import pytest

from realm_jax.artifacts.export import publish_export, read_export
from realm_jax.storage import commit, sealed
from realm_jax.storage.layout import RunDir, step_name


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


def networks(value):
    return {"embedder": {"weight": np.full((2, 3), value, np.float32)}}


def exported(run):
    export = read_export(run)
    return export.step, export.index_step, float(export.networks["embedder"]["weight"][0, 0])


def test_the_same_networks_are_published_once(run):
    for _ in range(2):
        publish_export(run, 4, 4, networks(1.0), "{}")
    assert commit.steps(run.export) == [4]


def test_a_later_export_of_fewer_steps_is_the_newest(run):
    publish_export(run, 3000, 1000, networks(1.0), "{}")
    publish_export(run, 2000, 1500, networks(2.0), "{}")
    assert exported(run) == (3001, 1500, 2.0)
    publish_export(run, 2000, 1500, networks(2.0), "{}")
    assert commit.steps(run.export) == [3000, 3001]
    publish_export(run, 4000, 2000, networks(3.0), "{}")
    assert exported(run) == (4000, 2000, 3.0)


@pytest.mark.parametrize(("index", "value"), [(4, 2.0), (5, 1.0)])
def test_other_networks_or_another_index_of_the_same_number_are_a_new_export(run, index, value):
    publish_export(run, 4, 4, networks(1.0), "{}")
    publish_export(run, 4, index, networks(value), "{}")
    assert exported(run) == (5, index, value)


def test_the_command_that_pretrained_a_run_keeps_what_it_was_fine_tuned_to(run):
    tuned = {**networks(1.0), "span_head": {"bias": np.zeros(2, np.float32)}}
    assert publish_export(run, 4, 4, networks(1.0), "{}") == 4
    assert publish_export(run, 6, 4, tuned, "{}") == 6
    assert publish_export(run, 4, 4, networks(1.0), "{}") == 6
    assert publish_export(run, 4, 4, networks(2.0), "{}") == 7  # trained again


def test_an_export_of_an_earlier_version_is_compared_too(run):
    publish_export(run, 4, 4, networks(1.0), "{}")
    folder = run.export / step_name(4)
    manifest = commit.read_manifest(folder)
    del manifest["network_hashes"]
    sealed.write(folder / commit.MANIFEST, manifest)
    assert publish_export(run, 4, 4, networks(1.0), "{}") == 4
    assert publish_export(run, 4, 4, networks(2.0), "{}") == 5


def test_networks_with_other_names_dtypes_or_shapes_differ(run):
    weight = np.zeros((2, 3), np.float32)
    others = [
        {"embedder": {"weight": weight}},
        {"reader": {"weight": weight}},
        {"embedder": {"weight": weight.view(np.int32)}},
        {"embedder": {"weight": weight.reshape(3, 2)}},
        {"embedder": {"weight": weight, "scale": np.float32(0)}},
    ]
    for one in others:
        publish_export(run, 1, 1, one, "{}")
    assert commit.steps(run.export) == [1, 2, 3, 4, 5]
