"""Reads a TensorFlow checkpoint without TensorFlow.

TensorFlow 2.21 wrote `google/model.ckpt-300000`. It has the variables of a very small ORQA model,
under the names of the released code. Entry i of each variable is i + crc32(name) mod 997.
"""

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

import realm_jax.interop
from realm_jax.errors import DamageError, InputError
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.tensor_bundle import read_bundle
from realm_jax.interop.tensorflow_names import to_hugging_face
from realm_jax.interop.weights import open_weights

CHECKPOINT = Path(__file__).parent / "google" / "model.ckpt-300000"
INDEX, DATA = f"{CHECKPOINT.name}.index", f"{CHECKPOINT.name}.data-00000-of-00001"
HEADS = 2


def value(name, shape):
    return (
        np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + zlib.crc32(name.encode()) % 997
    )


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(CHECKPOINT.parent, tmp_path / "copy")
    return tmp_path / "copy" / CHECKPOINT.name


def test_every_variable_equals_the_value_that_tensorflow_wrote():
    found = read_bundle(CHECKPOINT)
    assert found.pop("global_step").read() == 300_000
    assert found["reader/dense/kernel"].shape == (4, 4)
    for name, array in found.items():
        np.testing.assert_array_equal(array.read(), value(name, array.shape), err_msg=name)


def test_a_fine_tuned_checkpoint_gives_retriever_and_reader():
    weights = open_weights(CHECKPOINT, HEADS)
    assert weights.kind == "openqa"
    assert (weights.sizes.layers, weights.sizes.gelu, weights.sizes.span) == (2, "tanh", 2)
    assert not weights.missing and not weights.unused
    assert weights.left_out["optimizer state"] == 2
    embedder, reader = weights.networks["embedder"], weights.networks["reader"]
    pairs = [
        (embedder, "bert.encoder.layer.1.intermediate.dense.weight",
         "module/module/module/module/bert/encoder/layer_1/intermediate/dense/kernel"),
        (embedder, "cls.dense.weight", "module/module/module/dense/kernel"),
        (embedder, "cls.LayerNorm.bias", "module/module/module/LayerNorm/beta"),
        (reader, "bert.embeddings.word_embeddings.weight",
         "reader/module/bert/embeddings/word_embeddings"),
        (reader, "cls.predictions.bias", "reader/module/cls/predictions/output_bias"),
        (reader, "qa_outputs.dense_intermediate.weight", "reader/dense/kernel"),
        (reader, "qa_outputs.dense_output.weight", "reader/dense_1/kernel"),
        (reader, "qa_outputs.layer_normalization.weight", "reader/layer_normalization/gamma"),
    ]  # fmt: skip
    for network, ours, theirs in pairs:
        array = network[ours]
        turned = value(theirs, array.T.shape).T if theirs.endswith("kernel") else None
        expected = value(theirs, array.shape) if turned is None else turned
        np.testing.assert_array_equal(array, expected, err_msg=ours)


def test_an_imported_network_runs():
    model = realm_jax.interop.load(str(CHECKPOINT), heads=HEADS)
    ids, segments = np.array([[1, 2, 3, 4]]), np.array([[0, 1, 1, 1]])
    assert model.embed(ids, np.ones((1, 4)), segments).shape == (1, 3)
    assert model.span_logits(ids, np.ones((1, 4)), segments).shape == (1, 4, 10)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("bert/encoder/layer_11/output/LayerNorm/gamma",
         "bert.encoder.layer.11.output.LayerNorm.weight"),
        ("cls/predictions/transform/dense/kernel", "cls.predictions.transform.dense.weight"),
        ("module/module/module/bert/pooler/dense/bias", "bert.pooler.dense.bias"),
        ("module/module/dense/kernel", "cls.dense.weight"),
        ("module/module/LayerNorm/beta", "cls.LayerNorm.bias"),
    ],
)  # fmt: skip
def test_names_of_the_pretrained_checkpoints_are_mapped(theirs, ours):
    array = LazyArray((2, 3), lambda: np.arange(6).reshape(2, 3))
    name, made = to_hugging_face(theirs, array)
    assert name == ours
    assert made.shape == ((3, 2) if theirs.endswith("kernel") else (2, 3)) == made.read().shape


def test_the_number_of_heads_must_be_given_if_no_file_has_it(copied):
    with pytest.raises(InputError, match=r"num_attention_heads[\s\S]*--heads"):
        open_weights(copied)
    told = {"num_attention_heads": HEADS, "hidden_act": "gelu"}
    (copied.parent / "bert_config.json").write_text(json.dumps(told))
    assert open_weights(copied.parent).sizes.gelu == "tanh"
    assert open_weights(copied.with_name(INDEX)).sizes.heads == HEADS


def test_a_damaged_checkpoint_is_an_error_with_the_file(copied):
    index, data = copied.with_name(INDEX), copied.with_name(DATA)
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(DamageError, match=rf"{DATA}[\s\S]*{len(whole)}[\s\S]*{len(whole) - 1}"):
        read_bundle(copied)
    data.unlink()
    with pytest.raises(DamageError, match="no such file"):
        read_bundle(copied)
    content = bytearray(index.read_bytes())
    content[40] ^= 1
    index.write_bytes(content)
    with pytest.raises(DamageError, match="checksum"):
        read_bundle(copied)
    index.write_bytes(content[:100])
    with pytest.raises(DamageError, match="truncated"):
        read_bundle(copied)
