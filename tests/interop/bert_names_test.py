"""Published BERT weights: names are mapped in both directions, and outputs are the same."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import other_formats
from support.tiny_corpus import tiny_config

from realm_jax.errors import InputError, MismatchError
from realm_jax.interop.detect import detect_networks
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.names import SPAN_HEAD, from_bert_names, network_of, to_bert_names
from realm_jax.interop.save import save_bert
from realm_jax.interop.warm_start import load_networks
from realm_jax.models.modules import Modules

LAYERS, H, HEADS, V = (
    other_formats.LAYERS,
    other_formats.HIDDEN,
    other_formats.HEADS,
    other_formats.VOCABULARY,
)


def state_dict():
    return other_formats.state_dict("bert")


def plain_bert(w, ids, mask, segments, exact):
    """A reference BERT for one row, as in the paper, on weights with published names."""

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def gelu(x):
        if exact:
            return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = w["bert.embeddings.word_embeddings.weight"][ids]
    x = x + w["bert.embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(
        x + w["bert.embeddings.token_type_embeddings.weight"][segments], "bert.embeddings.LayerNorm"
    )
    for i in range(LAYERS):
        layer = f"bert.encoder.layer.{i}"
        q, k, v = (dense(x, f"{layer}.attention.self.{n}") for n in ("query", "key", "value"))
        heads = []
        for part in np.split(np.arange(H), HEADS):
            scores = q[:, part] @ k[:, part].T / math.sqrt(H // HEADS)
            shares = np.exp(scores - scores.max()) * mask
            heads.append(shares / shares.sum(-1, keepdims=True) @ v[:, part])
        attended = dense(np.concatenate(heads, -1), f"{layer}.attention.output.dense")
        x = norm(x + attended, f"{layer}.attention.output.LayerNorm")
        inner = dense(gelu(dense(x, f"{layer}.intermediate.dense")), f"{layer}.output.dense")
        x = norm(x + inner, f"{layer}.output.LayerNorm")
    head = norm(
        gelu(dense(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm"
    )
    logits = head @ w["bert.embeddings.word_embeddings.weight"].T + w["cls.predictions.bias"]
    return np.tanh(dense(x[0], "bert.pooler.dense")), logits


@pytest.fixture(scope="module")
def modules():
    return Modules(tiny_config().model, V, ("embedder", "reader", "span_head"))


@pytest.fixture(scope="module")
def drawn(modules):
    return jax.device_get(jax.jit(modules.init)(jax.random.key(0)))


@pytest.fixture
def model():
    return tiny_config().model


@pytest.fixture
def folder(tmp_path):
    return other_formats.write_hugging_face_folder(tmp_path / "theirs", state_dict())


def recognised(theirs, **description):
    lazy = {name: LazyArray(array.shape, array.copy) for name, array in theirs.items()}
    return detect_networks(lazy, other_formats.BERT_CONFIG | description)


@pytest.mark.parametrize("kind", ["embedder", "encoder", "reader"])
def test_hugging_face_names_round_trip_bit_for_bit(kind):
    [theirs] = recognised(other_formats.state_dict(kind)).networks.values()
    parts = from_bert_names(theirs, HEADS)
    network = network_of(parts, "embedder" if kind == "embedder" else "reader")
    if kind == "reader":
        network[SPAN_HEAD] = network_of(parts, SPAN_HEAD)
    again = to_bert_names(network)
    assert again.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)


@pytest.mark.parametrize("network", ["embedder", "reader"])
def test_our_parameters_round_trip_bit_for_bit(drawn, network):
    tree = jax.tree.map(lambda x: x + np.arange(x.size).reshape(x.shape), drawn[network])
    again = network_of(from_bert_names(to_bert_names(tree), HEADS), network)
    jax.tree.map(np.testing.assert_array_equal, again, tree)


def test_a_span_head_round_trips_with_its_reader(drawn, model, tmp_path):
    both = {**drawn["reader"], SPAN_HEAD: drawn["span_head"]}
    both = jax.tree.map(lambda x: x + np.float32(np.arange(x.size)).reshape(x.shape), both)
    theirs = to_bert_names(both)
    width = drawn["span_head"]["norm"]["scale"].size
    assert theirs["qa_outputs.dense_intermediate.weight"].shape == (2 * width, H)
    assert theirs["qa_outputs.dense_output.weight"].shape == (1, width)
    for prefix in ("", "reader."):
        save_file({prefix + n: a for n, a in theirs.items()}, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(other_formats.BERT_CONFIG))
        loaded = load_networks(str(tmp_path), drawn, model)
        jax.tree.map(np.testing.assert_array_equal, loaded["span_head"], both[SPAN_HEAD])
        jax.tree.map(np.testing.assert_array_equal, loaded["reader"]["norm"], both["norm"])


def test_without_a_span_head_in_the_weights_it_keeps_its_initial_values(drawn, model, folder):
    loaded = load_networks(str(folder), drawn, model)
    jax.tree.map(np.testing.assert_array_equal, loaded["span_head"], drawn["span_head"])


@pytest.mark.parametrize("gelu", ["tanh", "erf"])
def test_loaded_networks_equal_a_bert_reference(drawn, tmp_path, gelu):
    act = {"tanh": "gelu_new", "erf": "gelu"}[gelu]
    folder = other_formats.write_hugging_face_folder(tmp_path, state_dict(), hidden_act=act)
    model = tiny_config(model__gelu=gelu).model
    modules = Modules(model, V, ("embedder", "reader", "span_head"))
    loaded = load_networks(str(folder), drawn, model)
    networks = modules.bind(jax.tree.map(jnp.asarray, loaded))
    rng = np.random.default_rng(1)
    ids = rng.integers(0, V, (1, 12)).astype(np.int32)
    mask = (np.arange(12) < 9)[None]
    segments = (np.arange(12) >= 4)[None].astype(np.int32)
    pooled, logits = plain_bert(state_dict(), ids[0], mask[0], segments[0], gelu == "erf")

    rows = [jnp.asarray(part) for part in (ids, mask, segments)]
    positions = jnp.arange(9)[None]
    np.testing.assert_allclose(
        networks.reader.mlm_logits(*rows, positions)[0], logits[:9], rtol=2e-4, atol=2e-4
    )
    own = loaded["embedder"]
    projected = pooled @ own["projection"]["kernel"]
    expected = (projected - projected.mean()) / projected.std()
    np.testing.assert_allclose(networks.embedder.embed(*rows)[0], expected, rtol=1e-3, atol=1e-3)


def test_params_missing_from_the_weights_keep_their_initial_values(drawn, model, folder):
    loaded = load_networks(str(folder), drawn, model)
    for name in ("projection", "norm"):
        jax.tree.map(
            np.testing.assert_array_equal, loaded["embedder"][name], drawn["embedder"][name]
        )
    assert load_networks("", drawn, model) == {}


def renamed(theirs, prefix):
    return {name.replace("bert.", prefix, 1): array for name, array in theirs.items()}


def original_names(theirs):
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {
        next((name.replace(a, b) for a, b in old.items() if a in name), name): array
        for name, array in theirs.items()
    }


@pytest.mark.parametrize(
    "theirs",
    [
        {f"model.{name}": array for name, array in state_dict().items()},
        renamed(state_dict(), "realm."),
        renamed(state_dict(), ""),
        original_names(state_dict()),
    ],
    ids=["wrapped", "realm", "bare", "first names"],
)
def test_name_variants_give_the_same_tree(theirs):
    assert theirs.keys() != state_dict().keys()
    [expected], [found] = (recognised(x).networks.values() for x in (state_dict(), theirs))
    pooler = {name for name in expected if "pooler" in name}  # an encoder of REALM has none
    assert expected.keys() - pooler <= found.keys() <= expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_a_layer_with_missing_weights_is_an_error_with_its_name():
    theirs = state_dict()
    del theirs["bert.encoder.layer.1.output.LayerNorm.bias"]
    with pytest.raises(MismatchError, match=r"layer\.1\.output\.LayerNorm\.bias"):
        from_bert_names(theirs, HEADS)


def test_weights_of_another_width_are_refused_with_both_widths(drawn, model, tmp_path):
    draw = other_formats.RandomWeights(0, width=20)
    names = draw.bert() | draw.masked_lm()
    folder = other_formats.write_hugging_face_folder(tmp_path / "wide", names, hidden_size=20)
    with pytest.raises(MismatchError) as error:
        load_networks(str(folder), drawn, model)
    assert H in error.value.expected
    assert 20 in error.value.found


def test_weights_of_another_vocabulary_are_refused_with_both_sizes(drawn, model, tmp_path):
    draw = other_formats.RandomWeights(0, vocabulary=V + 1)
    names = draw.bert() | draw.masked_lm()
    folder = other_formats.write_hugging_face_folder(tmp_path / "more", names, vocab_size=V + 1)
    (folder / "vocab.txt").unlink()
    with pytest.raises(MismatchError) as error:
        load_networks(str(folder), drawn, model)
    assert V in error.value.expected
    assert V + 1 in error.value.found


def test_weights_trained_with_another_gelu_are_refused_with_both_names(drawn, model, tmp_path):
    folder = other_formats.write_hugging_face_folder(
        tmp_path / "erf", state_dict(), hidden_act="gelu"
    )
    with pytest.raises(MismatchError, match=r"tanh[\s\S]*erf"):
        load_networks(str(folder), drawn, model)
    load_networks(str(folder), drawn, tiny_config(model__gelu="erf").model)


def test_weights_without_a_bert_are_an_error(drawn, model, folder):
    save_file({"conv.weight": np.zeros(3, np.float32)}, folder / "model.safetensors")
    with pytest.raises(MismatchError, match="BERT"):
        load_networks(str(folder), drawn, model)


def test_missing_weights_are_an_error_with_the_path(drawn, model, tmp_path):
    with pytest.raises(InputError, match=r"model\.safetensors"):
        load_networks(str(tmp_path), drawn, model)


def test_saved_weights_load_again_bit_for_bit(drawn, model, tmp_path):
    save_bert(tmp_path / "out", drawn["reader"], model)
    loaded = load_networks(str(tmp_path / "out"), drawn, model)
    jax.tree.map(np.testing.assert_array_equal, loaded["reader"], drawn["reader"])
    assert "cls.predictions.bias" in load_file(tmp_path / "out" / "model.safetensors")
