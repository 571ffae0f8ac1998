"""`realm import`: output, written files, and refused input."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file
from support.other_formats import HIDDEN, KINDS, POSITIONS, state_dict
from support.other_formats import VOCABULARY as V
from support.tiny_corpus import tiny_config

import realm_jax.interop
from realm_jax.errors import DamageError, InputError, MismatchError
from realm_jax.interop.warm_start import load_networks
from realm_jax.interop.weights import open_weights
from realm_jax.models.modules import Modules


def rows(seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, V, (3, 12))
    mask = np.arange(12) < np.array([[12], [9], [6]])
    segments = np.broadcast_to(np.arange(12) >= 4, (3, 12)).astype(np.int32)
    return ids, mask, segments


@pytest.mark.parametrize("kind", KINDS)
def test_import_prints_all_documented_fields(realm, theirs, tmp_path, kind):
    source = theirs(kind)
    report = realm("import", f"--from={source}", f"--to={tmp_path / 'ours'}", "--json").json()
    assert report["kind"] == kind
    assert report["unused"] == report["missing"] == []
    held = open_weights(tmp_path / "ours").networks
    assert report["parameters"] == sum(a.size for names in held.values() for a in names.values())
    assert (report["vocabulary"], report["gelu"]) == (V, "tanh")


@pytest.mark.parametrize("kind", KINDS)
def test_imported_weights_give_the_outputs_of_their_source(realm, theirs, tmp_path, kind):
    source = theirs(kind)
    realm("import", f"--from={source}", f"--to={tmp_path / 'ours'}")
    before, after = (realm_jax.interop.load(str(p)) for p in (source, tmp_path / "ours"))
    asked = [before.hidden(*rows())], [after.hidden(*rows())]
    for model, outputs in zip((before, after), asked, strict=True):
        positions = np.array([[1, 3]] * 3)
        if kind in ("embedder", "scorer", "openqa"):
            outputs += [model.embed(*rows()), model.embed_queries(*rows())]
        if kind in ("bert", "encoder", "reader", "openqa"):
            outputs.append(model.mlm_logits(*rows(), positions))
        if kind in ("reader", "openqa"):
            outputs.append(model.span_logits(*rows()))
    jax.tree.map(np.testing.assert_array_equal, *asked)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_starts_from_imported_weights(realm, theirs, tmp_path, kind):
    ours = tmp_path / "ours"
    realm("import", f"--from={theirs(kind)}", f"--to={ours}")
    model = tiny_config().model
    drawn = Modules(model, V, ("embedder", "reader", "span_head")).init(jax.random.key(0))
    loaded = load_networks(str(ours), jax.device_get(drawn), model)
    names = state_dict(kind)
    of = {"openqa": "embedder.realm.", "scorer": "embedder.realm.", "bert": "bert."}
    words = names[f"{of.get(kind, 'realm.')}embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(loaded["embedder"]["bert"]["word"], words)
    if kind == "openqa":
        words = names["reader.realm.embeddings.word_embeddings.weight"]
        np.testing.assert_array_equal(loaded["reader"]["bert"]["word"], words)
        np.testing.assert_array_equal(
            loaded["embedder"]["projection"]["bias"], names["embedder.cls.dense.bias"]
        )
        np.testing.assert_array_equal(
            loaded["span_head"]["score"]["kernel"], names["reader.qa_outputs.dense_output.weight"].T
        )


def test_import_lists_unused_and_missing_weights(realm, theirs, tmp_path):
    source = theirs("encoder")
    names = state_dict("encoder")
    lost = ["realm.encoder.layer.1.output.dense.bias", "cls.predictions.transform.dense.weight"]
    for name in lost:
        del names[name]
    names["cls.seq_relationship.weight"] = np.zeros((2, HIDDEN), np.float32)
    names["foo.weight"] = np.zeros(3, np.float32)
    names["realm.embeddings.position_ids"] = np.arange(POSITIONS)[None]
    save_file(names, source / "model.safetensors")
    ours = tmp_path / "ours"
    report = realm("import", f"--from={source}", f"--to={ours}", "--json").json()
    assert sorted(report["missing"]) == sorted(lost)
    assert report["unused"] == ["cls.seq_relationship.weight", "foo.weight"]
    assert sum(report["left_out"].values()) == 3  # position_ids and the pooler's two
    with pytest.raises(MismatchError, match=r"layer\.1\.output\.dense\.bias"):
        realm_jax.interop.load(str(ours)).hidden(*rows())


def test_another_vocabulary_is_refused_with_both_values(realm, theirs, tmp_path):
    refused = realm("import", f"--from={theirs('bert', vocab_size=77)}", f"--to={tmp_path / 'a'}")
    refused.refused("vocabulary size", "77", V)
    short = tmp_path / "short.txt"
    short.write_text("[PAD]\n[UNK]\n")
    source = theirs("bert")
    result = realm("import", f"--from={source}", f"--to={tmp_path / 'a'}", f"--vocab={short}")
    result.refused("vocabulary size", f"{V} word pieces", "2 word pieces")
    (source / "vocab.txt").write_text("[PAD]\n")
    realm("import", f"--from={source}", f"--to={tmp_path / 'a'}").refused(V, "1 word pieces")
    assert not (tmp_path / "a").exists()


def test_weights_without_a_vocabulary_are_imported_with_a_warning(realm, theirs, tmp_path):
    source = theirs("bert")
    vocabulary = (source / "vocab.txt").rename(tmp_path / "vocab.txt")
    warned = realm("import", f"--from={source}", f"--to={tmp_path / 'a'}")
    assert warned.code == 0
    assert "warning: no vocab.txt" in warned.err and "--vocab=FILE" in warned.err
    for given, to in ((vocabulary, "b"), (tmp_path, "c")):  # as for `realm corpus build`
        again = realm("import", f"--from={source}", f"--to={tmp_path / to}", f"--vocab={given}")
        assert again.code == 0 and "warning" not in again.err
        assert (tmp_path / to / "vocab.txt").read_bytes() == vocabulary.read_bytes()
    refused = realm("import", f"--from={source}", f"--to={tmp_path / 'd'}", f"--vocab={source}")
    refused.refused("no vocabulary in the folder", source)


def test_invalid_folders_are_refused_with_their_path(realm, theirs, tmp_path):
    def refused(*words):
        realm("import", f"--from={source}", f"--to={tmp_path / 'a'}").refused(*words)
        assert not (tmp_path / "a").exists()

    source = theirs("bert")
    weights = source / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    refused("damaged weights", weights)
    weights.write_bytes(whole[:4])
    refused("damaged weights", weights)
    weights.write_bytes(whole)
    (source / "config.json").write_text("{")
    refused("not a model's description", source / "config.json")
    (source / "config.json").unlink()
    refused("no description", source / "config.json")
    weights.unlink()
    refused("no weights here", source, "model.safetensors")
    source = tmp_path / "nowhere"
    refused("no such folder", source)


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"model_type": "roberta"}, ["bert or realm", "roberta"]),
        ({"hidden_act": "relu"}, ["hidden_act", "relu"]),
        ({"layer_norm_eps": 1e-5}, ["layer_norm_eps 1e-12", "layer_norm_eps 1e-05"]),
        ({"position_embedding_type": "relative_key"}, ["absolute", "relative_key"]),
        ({"hidden_size": 32}, ["hidden_size 32", "hidden_size 16"]),
        ({"num_attention_heads": 3}, ["num_attention_heads", "3"]),
        ({"num_attention_heads": None}, ["num_attention_heads"]),
    ],
)
def test_unsupported_models_are_refused(realm, theirs, tmp_path, description, words):
    source = theirs("bert", **description)
    realm("import", f"--from={source}", f"--to={tmp_path / 'a'}").refused(*words)


def test_an_untied_decoder_is_refused_if_it_is_used(realm, theirs, tmp_path):
    for kind in ("encoder", "reader"):
        source, names = theirs(kind), state_dict(kind)
        names["cls.predictions.decoder.weight"] = np.ones((V, HIDDEN), np.float32)
        save_file(names, source / "model.safetensors")
        result = realm("import", f"--from={source}", f"--to={tmp_path / kind}", "--json")
        if kind == "encoder":
            result.refused("cls.predictions.decoder.weight", "not tied")
        else:
            assert result.json()["unused"] == []


def test_two_different_towers_of_a_scorer_stay_separate(realm, theirs, tmp_path):
    source, names = theirs("scorer"), state_dict("scorer")
    names["query_embedder.cls.dense.weight"] = names["query_embedder.cls.dense.weight"] * 2 + 1
    save_file(names, source / "model.safetensors")
    realm("import", f"--from={source}", f"--to={tmp_path / 'two'}")
    model = realm_jax.interop.load(str(tmp_path / "two"))
    assert not np.allclose(model.embed(*rows()), model.embed_queries(*rows()))
    np.testing.assert_array_equal(
        model.embed_queries(*rows()), realm_jax.interop.load(str(source)).embed_queries(*rows())
    )


def test_block_records_are_converted_only_when_asked(realm, theirs, tmp_path):
    source = theirs("openqa")
    records = source / "block_records.npy"
    np.save(records, np.array([b"Rome", b"Oslo"], object), allow_pickle=True)
    report = realm("import", f"--from={source}", f"--to={tmp_path / 'a'}", "--json").json()
    assert any("--block-records" in reason for reason in report["left_out"])
    assert not list((tmp_path / "a").glob("*.jsonl"))
    asked = ("import", f"--from={source}", f"--to={tmp_path / 'b'}", "--block-records", "--json")
    assert realm(*asked).json()["blocks"] == 2
    assert "Oslo" in (tmp_path / "b" / "blocks.jsonl").read_text()
    realm("import", f"--from={records}", f"--to={tmp_path / 'c'}").refused("--block-records")


def test_the_model_refuses_missing_networks_and_invalid_ids(theirs):
    model = realm_jax.interop.load(str(theirs("encoder")))
    ids, mask, segments = rows()
    for call in (model.embed, model.span_logits):
        with pytest.raises(InputError, match="encoder"):
            call(ids, mask, segments)
    for wrong in ((ids + V, mask, segments), (ids, mask, segments + 2), (ids - V, mask, segments)):
        with pytest.raises(InputError, match="out of range"):
            model.hidden(*wrong)
    long = np.zeros((1, POSITIONS + 1), np.int32)
    with pytest.raises(InputError, match="row length"):
        model.hidden(long, long, long)
    for wrong in (np.full((3, 1), 12), np.full((3, 1), -1)):
        with pytest.raises(InputError, match="positions out of range"):
            model.mlm_logits(ids, mask, segments, wrong)


def test_weight_files_outside_of_the_folder_are_refused(theirs):
    source = theirs("bert")
    (source / "model.safetensors").rename(source.parent / "outside.safetensors")
    listed = {"weight_map": {"x": "../outside.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(listed))
    with pytest.raises(DamageError, match="outside"):
        open_weights(source)
