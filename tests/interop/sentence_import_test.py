"""Import of sentence-transformers folders, DistilBERT and other weights that people have."""

import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.tiny_corpus import tiny_config, vocabulary

import realm_jax.interop
from realm_jax.errors import RealmError
from realm_jax.interop.distilbert_names import bert_arrays, bert_description
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.interop.sentence_modules import PROMPTS
from realm_jax.interop.start_config import load_config
from realm_jax.interop.weights import open_weights, weights_of_run, write_weights
from realm_jax.models.modules import Modules

V = len(vocabulary())
FORM = {
    "pooling": "mean",
    "projection": "12:tanh 8",
    "normalise": True,
    "passage_row": "single",
    "query_prompt": "query: ",
    "temperature": 0.05,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A sentence-transformers folder with random weights."""
    parent = tmp_path_factory.mktemp("made")
    pieces = parent / "pieces.txt"
    pieces.write_text("".join(f"{piece}\n" for piece in vocabulary()))
    config = tiny_config(**{f"model__{key}": value for key, value in FORM.items()})
    params = jax.device_get(Modules(config.model, V, ("embedder",)).init(jax.random.key(0)))
    weights = weights_of_run(params, config.model, 5, pieces, longest=40)
    folder = parent / "folder"
    write_sentence_transformers(folder, weights.networks["embedder"], weights.sizes, pieces)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "folder")


def change(path, **values):
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


def change_arrays(path, change):
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def rows():
    ids = np.random.default_rng(0).integers(5, V, (3, 9)).astype(np.int32)
    return ids, np.ones_like(ids), np.zeros_like(ids)


def vectors(folder):
    return np.asarray(realm_jax.interop.load(str(folder)).embed(*rows()))


def test_an_encoder_with_a_reader_that_has_a_span_head_comes_back(tmp_path):
    """The reader's folder says nothing about the form of the embedder."""
    config = tiny_config(**{f"model__{key}": value for key, value in FORM.items()})
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary()))
    names = ("embedder", "reader", "span_head")
    params = jax.device_get(Modules(config.model, V, names).init(jax.random.key(0)))
    weights = weights_of_run(params, config.model, 5, tmp_path / "vocab.txt", longest=40)
    write_weights(tmp_path / "W", weights)
    again = open_weights(tmp_path / "W")
    assert again.sizes.form == weights.sizes.form and again.sizes.widest == 5
    for network, arrays in weights.networks.items():
        assert again.networks[network].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(again.networks[network][name], array)


def test_form_and_arrays_survive_import_and_export(made, tmp_path):
    weights = open_weights(made)
    form = weights.sizes.form
    assert {key: getattr(form, key) for key in FORM} == FORM and form.longest == 40
    assert (weights.kind, weights.sizes.embedding) == ("sentence-transformers", 8)
    assert not weights.missing and not weights.unused
    write_weights(tmp_path / "W", weights)
    again = open_weights(tmp_path / "W")
    assert again.sizes == weights.sizes
    for name, array in weights.networks["embedder"].items():
        np.testing.assert_array_equal(again.networks["embedder"][name], array)
    assert sorted(p.name for p in made.rglob("*")) == sorted(
        p.name for p in (tmp_path / "W").rglob("*")
    )


def test_an_export_that_failed_is_not_read_as_a_bert_without_modules(made, tmp_path):
    weights, folder = open_weights(made), tmp_path / "W"
    folder.mkdir()
    (folder / "2_Dense").touch()  # where a folder is to be written
    arrays = weights.networks["embedder"]
    with pytest.raises(FileExistsError):
        write_sentence_transformers(folder, arrays, weights.sizes, weights.vocabulary)
    with pytest.raises(RealmError, match="no weights here"):
        open_weights(folder)


def test_the_modules_of_the_current_sentence_transformers_are_read(folder):
    """Version 6 has other class paths and one pooling_mode, and writes tokenizer.json only."""
    expected = vectors(folder)
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        module["type"] = f"sentence_transformers.base.modules.{kind.lower()}.{kind}"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    (folder / "vocab.txt").unlink()
    (folder / "sentence_bert_config.json").write_text("{}")
    model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(vocabulary())}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    np.testing.assert_array_equal(vectors(folder), expected)
    assert open_weights(folder).sizes.form.longest == 40  # from tokenizer_config.json


@pytest.mark.parametrize("stated, normalise", [("cosine", True), ("dot", False), (None, False)])
def test_without_a_normalize_module_the_stated_similarity_decides(folder, stated, normalise):
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))
    change(folder / PROMPTS, similarity_fn_name=stated)
    description = json.loads((folder / "config.json").read_text())
    kept = {key: value for key, value in description.items() if not key.startswith("realm")}
    (folder / "config.json").write_text(json.dumps(kept))  # as other programs write it
    form = open_weights(folder).sizes.form
    assert (form.normalise, form.temperature) == (normalise, 0.05 if normalise else 1.0)
    lengths = np.linalg.norm(vectors(folder), axis=-1)
    assert np.allclose(lengths, 1, atol=1e-3) == normalise


def test_sharded_and_padded_weights_are_read(folder):
    expected = vectors(folder)

    def padded(arrays):
        words = arrays["bert.embeddings.word_embeddings.weight"]
        padding = np.full((128 - V, words.shape[1]), 7.0, np.float32)
        return arrays | {"bert.embeddings.word_embeddings.weight": np.concatenate([words, padding])}

    change_arrays(folder / "model.safetensors", padded)
    change(folder / "config.json", vocab_size=128)
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {f"model-0000{i}-of-00002.safetensors": list(arrays)[i::2] for i in range(2)}
    for name, names in parts.items():
        save_file({key: arrays[key] for key in names}, folder / name)
    index = {"weight_map": {key: name for name, names in parts.items() for key in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    weights = open_weights(folder)
    assert weights.sizes.vocabulary == V
    assert weights.left_out["word vectors that pad the vocabulary"] == 128 - V
    np.testing.assert_array_equal(vectors(folder), expected)


def test_distilbert_has_the_names_of_bert_and_no_segments():
    theirs = {
        "distilbert.embeddings.LayerNorm.bias": "bert.embeddings.LayerNorm.bias",
        "transformer.layer.3.attention.out_lin.weight": (
            "bert.encoder.layer.3.attention.output.dense.weight"
        ),
        "distilbert.transformer.layer.0.sa_layer_norm.bias": (
            "bert.encoder.layer.0.attention.output.LayerNorm.bias"
        ),
        "distilbert.transformer.layer.0.ffn.lin2.bias": "bert.encoder.layer.0.output.dense.bias",
        "vocab_transform.weight": "cls.predictions.transform.dense.weight",
        "vocab_projector.bias": "cls.predictions.decoder.bias",
    }
    found = bert_arrays({name: LazyArray((), lambda: np.zeros(())) for name in theirs}, 16)
    assert not found.pop("bert.embeddings.token_type_embeddings.weight").read().any()
    assert set(found) == set(theirs.values())
    described = bert_description({"dim": 16, "n_layers": 2, "activation": "gelu"})
    assert (described["hidden_size"], described["hidden_act"]) == (16, "gelu")


def _roberta(folder):
    change(folder / "config.json", model_type="roberta")


def _cased(folder):
    change(folder / "tokenizer_config.json", do_lower_case=False)


def _cased_in_a_sequence(folder):
    step = {"type": "BertNormalizer", "lowercase": False}
    normalizer = {"type": "Sequence", "normalizers": [{"type": "NFC"}, step]}
    (folder / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer}))


def _capitals(folder):
    pieces = [piece.replace("the", "The") for piece in vocabulary()]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))


def _nan(folder):
    path = folder / "model.safetensors"
    change_arrays(
        path,
        lambda arrays: arrays | {"bert.embeddings.LayerNorm.bias": np.full(16, np.nan, np.float32)},
    )


def _pointer(folder):
    path = folder / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n")


def _module(kind):
    def replace(folder):
        modules = json.loads((folder / "modules.json").read_text())
        modules[2]["type"] = f"sentence_transformers.models.{kind}"
        (folder / "modules.json").write_text(json.dumps(modules))

    return replace


def _two_poolings(folder):
    change(folder / "1_Pooling" / "config.json", pooling_mode_cls_token=True)


def _outside(folder):
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(modules))


def _similarity(name):
    return lambda folder: change(folder / PROMPTS, similarity_fn_name=name)


def _eight_bits(folder):
    """A float of 8 bits, which numpy cannot write."""
    header = {"word": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}
    content = json.dumps(header).encode()
    size = len(content).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(size + content + bytes(2))


def _no_weights_of_a_module(folder):
    (folder / "2_Dense" / "model.safetensors").unlink()


def _other_vocabulary(folder):
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary()[:60]))


@pytest.mark.parametrize(
    "damage, found, fix",
    [
        (_roberta, "roberta", "all-MiniLM-L6-v2"),
        (_cased, "cased", "uncased model"),
        (_cased_in_a_sequence, "cased", "uncased model"),
        (_capitals, "The", "uncased model"),
        (_nan, "16 of 16", "download the weights again"),
        (_pointer, "Git LFS pointer", "lfs pull"),
        (_module("CNN"), "CNN", "delete modules.json"),
        (_module("WordWeights"), "WordWeights", "all-MiniLM-L6-v2"),
        (_two_poolings, "cls and mean", "all-MiniLM-L6-v2"),
        (_outside, "../elsewhere", "all-MiniLM-L6-v2"),
        (_similarity("euclidean"), "euclidean", "all-MiniLM-L6-v2"),
        (_similarity("manhattan"), "manhattan", "all-MiniLM-L6-v2"),
        (_eight_bits, "word of F8_E4M3", "bfloat16"),
        (_no_weights_of_a_module, "2_Dense", None),
        (_other_vocabulary, "another vocabulary size", "vocab.txt"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_with_the_reason(folder, damage, found, fix):
    damage(folder)
    with pytest.raises(RealmError) as refused:
        open_weights(folder)
    assert found in str(refused.value)
    assert fix is None or fix in str(refused.value)


def test_special_pieces_in_capitals_do_not_make_a_vocabulary_cased(folder):
    """Chinese BERT, and the encoders that start from it, have the pieces <S> and <T>."""
    path = folder / "vocab.txt"
    pieces = path.read_text().replace("[unused0]", "<S>").replace("[unused1]", "<T>")
    path.write_text(pieces)
    assert "<T>" in pieces and open_weights(folder).sizes.vocabulary == V


def test_a_config_becomes_like_its_start(made):
    start = {"model.start": str(made)}
    config = load_config("experiments/as_is.py", start)
    assert config.model.layers == 2 and config.model.gelu == "tanh"
    assert {key: config.model[key] for key in FORM} == FORM
    assert config.lengths.passage == 40 and config.lengths.joint == 64
    changed = load_config("experiments/as_is.py", start | {"model.temperature": "0.1"})
    assert changed.model.temperature == 0.1
    trained = load_config("own_corpus", start)
    assert trained.stages.ict.steps == trained.stages.realm.steps == 300
    assert trained.model.pooling == "mean"
    assert load_config("own_corpus", {}).model.pooling == "pooler"


@pytest.mark.parametrize("form", [{"normalise": True}, {"pooling": "mean"}])
def test_a_projection_that_the_modules_cannot_express_is_refused(tmp_path, form):
    config = tiny_config(**{f"model__{key}": value for key, value in form.items()})
    params = jax.device_get(Modules(config.model, V, ("embedder",)).init(jax.random.key(0)))
    (tmp_path / "pieces.txt").write_text("".join(f"{piece}\n" for piece in vocabulary()))
    weights = weights_of_run(params, config.model, 5, tmp_path / "pieces.txt", longest=40)
    with pytest.raises(RealmError, match=r"layer_norm[\s\S]*model\.projection=none"):
        write_weights(tmp_path / "out", weights)


def test_an_exported_form_is_read_again_with_all_its_keys(tmp_path):
    form = {"pooling": "mean", "projection": "none", "normalise": True, "passage_row": "pair"}
    form |= {"temperature": 1.0, "embedding": tiny_config().model.hidden}
    config = tiny_config(**{f"model__{key}": value for key, value in form.items()})
    params = jax.device_get(Modules(config.model, V, ("embedder",)).init(jax.random.key(0)))
    (tmp_path / "pieces.txt").write_text("".join(f"{piece}\n" for piece in vocabulary()))
    weights = weights_of_run(params, config.model, 5, tmp_path / "pieces.txt", longest=40)
    write_weights(tmp_path / "out", weights)
    assert open_weights(tmp_path / "out").sizes.form.keys() == weights.sizes.form.keys()
