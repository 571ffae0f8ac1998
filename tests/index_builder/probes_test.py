"""Snapshots carry queries of the kind that the index will be asked; the builder embeds them."""

import threading

import jax
import numpy as np
import pytest
from support.probes import random_probes
from support.tiny_corpus import tiny_config

from realm_jax import config as config_lib
from realm_jax.artifacts.published_index import open_index
from realm_jax.artifacts.snapshots import publish_snapshot, read_snapshot
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.errors import MismatchError
from realm_jax.index_builder import refresh as refresh_module
from realm_jax.index_builder.refresh import refresh
from realm_jax.parallel.sharding import make_mesh
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.trainer.publisher import Publisher, probe_queries


@pytest.fixture(scope="module")
def config(tiny):
    return tiny_config(tiny.folder, model__layers=1, model__init_stddev=0.3)


@pytest.fixture(scope="module")
def params(config, tiny):
    encoder = Encoder(config, tiny.store.vocabulary.size)
    return jax.device_get(jax.jit(encoder.modules.init)(jax.random.key(0)))


def test_the_trainer_publishes_held_out_masked_sentences(config, params, tiny, tmp_path):
    held_out, text = (
        MaskedTextSource(tiny.store, tiny.spans, config, part) for part in ("held_out", "train")
    )
    probes = probe_queries(held_out, text, 8)
    assert 1 <= len(probes.ids) == len(held_out.first(8).queries.ids) <= 8
    publisher = Publisher(RunDir(tmp_path), 3, "{}", {}, make_mesh(config.mesh), probes)
    publisher.publish(4, params)
    publisher.wait()
    found = read_snapshot(RunDir(tmp_path).snapshots / step_name(4)).require_probes()
    jax.tree.map(np.testing.assert_array_equal, found, held_out.first(8).queries)


def test_recall_is_measured_with_the_probes_of_the_snapshot(
    config, params, tiny, tmp_path, monkeypatch
):
    run, probes, asked = RunDir(tmp_path), random_probes(config), []
    publish_snapshot(run, 2, params, config_lib.to_json(config), {}, probes=probes)
    build_index = refresh_module.build_index

    def recorded(*arguments):
        asked.append(arguments[-1])
        return build_index(*arguments)

    monkeypatch.setattr(refresh_module, "build_index", recorded)
    assert refresh(run, read_snapshot(run.snapshots / step_name(2)), threading.Event())
    encoder = Encoder(config, tiny.store.vocabulary.size)
    expected = encoder.embed_queries(params["embedder"], probes)
    np.testing.assert_allclose(asked[0], expected, rtol=1e-5, atol=1e-6)
    manifest = open_index(run.published_index / step_name(2)).manifest
    assert (manifest["recall"], manifest["recall_passages"]) == (1.0, 1.0)


def test_a_snapshot_without_probes_is_refused_before_the_corpus_is_embedded(
    config, params, tmp_path, monkeypatch
):
    run = RunDir(tmp_path)
    publish_snapshot(run, 2, params, config_lib.to_json(config), {})
    monkeypatch.setattr(Encoder, "embed_passages", lambda *_: pytest.fail("embedded"))
    with pytest.raises(MismatchError, match="no probe queries"):
        refresh(run, read_snapshot(run.snapshots / step_name(2)), threading.Event())
