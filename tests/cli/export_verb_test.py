"""`realm export`, and `realm check` of weights: written files, and damage that is named."""

import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.other_formats import KINDS
from support.tiny_corpus import tiny_config

from realm_jax.artifacts.export import read_export
from realm_jax.interop.warm_start import load_networks
from realm_jax.interop.weights import open_weights


def test_existing_files_are_not_overwritten(realm, theirs, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine.txt").write_text("mine")
    for verb in ("import", "export"):
        realm(verb, f"--from={theirs('bert')}", f"--to={tmp_path / 'a'}").refused("already exists")
    assert len(list((tmp_path / "a").iterdir())) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_export_and_import_round_trip_bit_for_bit(realm, theirs, tmp_path, kind):
    ours, out, back = (tmp_path / name for name in ("ours", "out", "back"))
    realm("import", f"--from={theirs(kind)}", f"--to={ours}")
    realm("export", f"--from={ours}", f"--to={out}", "--layout=hf")
    realm("import", f"--from={out}", f"--to={back}")
    first, last = (open_weights(path).networks for path in (ours, back))
    assert first.keys() == last.keys()
    jax.tree.map(np.testing.assert_array_equal, first, last)
    assert sorted(p.relative_to(ours) for p in ours.rglob("*")) == sorted(
        p.relative_to(back) for p in back.rglob("*")
    )


@pytest.mark.parametrize("kind", ["embedder", "openqa"])
def test_the_sentence_transformers_layout_round_trips_bit_for_bit(realm, theirs, tmp_path, kind):
    ours, out = tmp_path / "ours", tmp_path / "out"
    realm("import", f"--from={theirs(kind)}", f"--to={ours}")
    realm("export", f"--from={ours}", f"--to={out}", "--layout=sentence-transformers")
    first, last = open_weights(ours).networks["embedder"], open_weights(out).networks["embedder"]
    assert first.keys() == last.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(last[name], array, err_msg=name)
    scaled = load_file(out / "3_Dense" / "model.safetensors")["linear.weight"]
    np.testing.assert_array_equal(scaled, first["cls.dense.weight"] * 4096)
    modules = json.loads((out / "modules.json").read_text())
    assert [(out / module["path"]).is_dir() for module in modules] == [True] * 5


def test_the_sentence_layout_needs_embedder_and_vocabulary(realm, theirs, tmp_path):
    layout = "--layout=sentence-transformers"
    realm("export", f"--from={theirs('reader')}", f"--to={tmp_path / 'a'}", layout).refused(
        "no such network", "embedder", "reader"
    )
    source = theirs("embedder")
    (source / "vocab.txt").unlink()
    realm("export", f"--from={source}", f"--to={tmp_path / 'a'}", layout).refused("vocab.txt")


def test_all_networks_of_a_finished_run_are_exported(realm, finished, tmp_path):
    out = tmp_path / "out"
    report = realm("export", f"--workdir={finished.workdir}", f"--to={out}", "--json").json()
    networks = ["embedder", "question_embedder", "question_reader", "reader"]
    assert report["networks"] == networks
    exported = read_export(finished).networks
    model = tiny_config().model
    for name in networks:
        kind = "embedder" if "embedder" in name else "reader"
        drawn = jax.tree.map(np.zeros_like, {kind: exported[name]})
        loaded = load_networks(str(out / name), drawn, model)[kind]
        jax.tree.map(np.testing.assert_array_equal, loaded, exported[name])
    drawn = {"span_head": jax.tree.map(np.zeros_like, exported["span_head"])}
    loaded = load_networks(str(out), drawn, model)
    jax.tree.map(np.testing.assert_array_equal, loaded["span_head"], exported["span_head"])
    assert (out / "embedder" / "vocab.txt").is_file()


@pytest.mark.parametrize("has_card", [True, False])
def test_a_missing_model_card_is_reported_before_an_upload(
    realm, finished, tmp_path, monkeypatch, has_card
):
    """The upload itself is tested in tests/interop/hub_test.py."""
    monkeypatch.setattr("realm_jax.interop.hub.upload", lambda folder, name: name)
    run = shutil.copytree(finished.workdir, tmp_path / "run")
    card = run / "export" / "README.md"
    card.unlink(missing_ok=True)
    if has_card:
        card.write_text("# A model")
    to = tmp_path / "out"
    done = realm("export", f"--workdir={run}", f"--to={to}", "--push-to-hub=org/new")
    assert done.code == 0
    assert ("no model card" in done.err) is not has_card
    assert (to / "README.md").exists() is has_card


def _garbage(path):
    path.write_bytes(path.read_bytes() + b"garbage")


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def _no_header(path):
    path.write_bytes(b"\0" * 8 + path.read_bytes()[8:])


@pytest.mark.parametrize("damage", [_garbage, _cut, _no_header])
@pytest.mark.parametrize("layout", ["hf", "sentence-transformers"])
def test_check_recognises_weights_and_names_a_damaged_file(
    realm, finished, tmp_path, layout, damage
):
    out = tmp_path / "exported"
    realm("export", f"--workdir={finished.workdir}", f"--to={out}", f"--layout={layout}")
    sound = realm("check", out, "--json")
    assert (sound.code, sound.json()["kind"]) == (0, "weights"), sound.err
    assert "no checksums" in sound.err
    files = sorted(out.rglob("*.safetensors"))
    assert len(files) == 4
    for path in files:
        kept = path.read_bytes()
        damage(path)
        result = realm("check", out, "--json")
        assert (result.code, result.json()["kind"]) == (1, "weights")
        assert [one["file"] for one in result.json()["problems"]] == [str(path.relative_to(out))]
        assert "NOT VALID" in result.err and "a complete safetensors file" in result.err
        path.write_bytes(kept)


def test_check_verifies_imported_weights(realm, theirs, tmp_path):
    ours = tmp_path / "ours"
    realm("import", f"--from={theirs('bert')}", f"--to={ours}")
    assert realm("check", ours).err == "weights: can be read; these files have no checksums\n"
    (ours / "vocab.txt").write_text("[PAD]\n")
    result = realm("check", ours)
    assert (result.code, "vocab.txt" in result.err) == (1, True)
    (ours / "model.safetensors").unlink()
    result = realm("check", ours)
    assert (result.code, "unknown: NOT VALID" in result.err) == (1, True)


@pytest.mark.parametrize("damage", [_cut, lambda path: save_file({"a": np.zeros(3)}, path)])
def test_a_damaged_sentence_transformers_module_is_refused(realm, theirs, tmp_path, damage):
    out = tmp_path / "out"
    realm("export", f"--from={theirs('embedder')}", f"--to={out}", "--layout=sentence-transformers")
    damage(out / "3_Dense" / "model.safetensors")
    realm("import", f"--from={out}", f"--to={tmp_path / 'a'}").refused("3_Dense/model.safetensors")
