"""Equality with sentence-transformers, both ways: `make test-parity`."""

import jax
import numpy as np
import pytest
from peers import PARITY, V, close, torch, transformers
from support.minilm import minilm_folder
from support.tiny_corpus import tiny_config, vocabulary, write_tiny_corpus

import realm_jax.interop
from realm_jax import config as config_lib
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.rows import query_rows
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.interop.start_config import make_like
from realm_jax.interop.weights import open_weights, weights_of_run, write_weights
from realm_jax.models.modules import Modules
from realm_jax.text.wordpiece import WordPieces

sentences = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is in the current extra only"
)
modules = pytest.importorskip("sentence_transformers.models")
pytestmark = PARITY
MODES = {"mean_sqrt_len": "mean_sqrt_len_tokens"}
PROMPTS = {"query": "what is: ", "document": "the "}
TEXTS = ["the capital of ora", "a river in ube since 1503.", "what"]
TITLE, BODY = "Ora", "The river in ora was 7."


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a random BERT and its tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    pieces = folder / "pieces.txt"
    pieces.write_text("".join(f"{piece}\n" for piece in vocabulary()))
    transformers.BertTokenizer(str(pieces), do_lower_case=True).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"intermediate_size": 48, "max_position_embeddings": 64, "initializer_range": 0.2}
    transformers.BertModel(transformers.BertConfig(vocab_size=V, **sizes, **more)).save_pretrained(
        folder
    )
    return folder


@pytest.mark.parametrize("prompts", [{}, PROMPTS], ids=["", "prompts"])
@pytest.mark.parametrize("dense", [False, True], ids=["", "dense"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "mean_sqrt_len"])
def test_vectors_of_an_imported_encoder_are_those_of_sentence_transformers(
    bert, tmp_path, pooling, dense, prompts
):
    parts = [
        modules.Transformer(str(bert), max_seq_length=40),
        modules.Pooling(32, pooling_mode=MODES.get(pooling, pooling)),
    ]
    if dense:
        identity = torch.nn.Identity()
        parts += [modules.Dense(32, 24), modules.Dense(24, 12, True, identity)]
    else:
        parts.append(modules.Normalize())
    theirs = sentences.SentenceTransformer(modules=parts, prompts=prompts, device="cpu").eval()
    theirs.save(str(tmp_path / "theirs"))
    imported = open_weights(tmp_path / "theirs")
    assert imported.sizes.form.longest == 40
    write_weights(tmp_path / "ours", imported)
    again = sentences.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert again.max_seq_length == 40
    _same_vectors(f"sentence-transformers, {pooling}", tmp_path / "ours", theirs, again)


def _same_vectors(what, folder, theirs, again):
    """Compares the imported folder with both models, for queries and for passages."""
    config = config_lib.default()
    config.lengths.update(query=20, passage=40, joint=60)
    weights = open_weights(folder)
    make_like(config, weights.sizes, {"lengths.query"})
    model, words = realm_jax.interop.load(str(folder)), WordPieces.load(folder / "vocab.txt")
    rows = EmbedderRows(config, words)
    plain = [pieces for pieces, _ in words.pieces(TEXTS)]
    queries = rows.queries(query_rows(plain, config.lengths.query, words))
    for other in (theirs, again):
        close(f"{what}, queries", model.embed(*queries), other.encode_query(TEXTS))
    store = write_tiny_corpus(folder.parent, 4).store
    numbers = np.arange(4)
    passages = rows.passages(store, numbers, rows.passage)
    documents = [f"{store.title(i)} {store.body(i)}" for i in range(4)]
    for other in (theirs, again):
        close(f"{what}, passages", model.embed(*passages), other.encode_document(documents))


@pytest.mark.parametrize("pooling", ["pooler", "mean"])
def test_a_trained_form_is_exported_with_prompts_length_and_learned_temperature(tmp_path, pooling):
    form = {
        "pooling": pooling,
        "projection": "12:tanh 8",
        "normalise": True,
        "query_prompt": "what is",
    }
    form |= {"passage_row": "single", "learn_temperature": True, "temperature": 0.1}
    config = tiny_config(**{f"model__{key}": value for key, value in form.items()})
    params = Modules(config.model, V, ("embedder",)).init(jax.random.key(1))
    params["embedder"]["temperature_scale"] += 0.01
    pieces = tmp_path / "vocab.txt"
    pieces.write_text("".join(f"{piece}\n" for piece in vocabulary()))
    weights = weights_of_run(jax.device_get(params), config.model, 5, pieces, longest=40)
    assert weights.sizes.form.temperature == pytest.approx(0.1 * np.e)
    folder = tmp_path / "out"
    write_sentence_transformers(folder, weights.networks["embedder"], weights.sizes, pieces)
    theirs = sentences.SentenceTransformer(str(folder), device="cpu")
    assert (theirs.max_seq_length, theirs.prompts["query"]) == (40, "what is ")
    read = open_weights(folder).sizes.form
    assert read.temperature == pytest.approx(0.1 * np.e)
    _same_vectors(f"exported, {pooling}", folder, theirs, theirs)


def test_minilm_has_the_vectors_of_sentence_transformers(tmp_path):
    source = minilm_folder(tmp_path)
    write_weights(tmp_path / "W", open_weights(source))
    theirs = sentences.SentenceTransformer(str(source), device="cpu")
    again = sentences.SentenceTransformer(str(tmp_path / "W"), device="cpu")
    assert again.max_seq_length == theirs.max_seq_length == 256
    texts = ["The capital of Norway is Oslo.", "Café Zürich, 1905: ACME's R&D — 12 kg"]
    rows = theirs.tokenizer(texts, padding=True, return_tensors="np")
    parts = [rows[key] for key in ("input_ids", "attention_mask", "token_type_ids")]
    vectors = realm_jax.interop.load(str(tmp_path / "W")).embed(*parts)
    close("all-MiniLM-L6-v2", vectors, theirs.encode(texts))
    close("all-MiniLM-L6-v2, imported", again.encode(texts), theirs.encode(texts))


def test_distilbert_gives_the_same_hidden_vectors(tmp_path):
    torch.manual_seed(0)
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    config = transformers.DistilBertConfig(
        vocab_size=V, max_position_embeddings=64, initializer_range=0.2, **sizes
    )
    theirs = transformers.DistilBertModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ids = np.random.default_rng(0).integers(0, V, (3, 9)).astype(np.int64)
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).last_hidden_state
    model = realm_jax.interop.load(str(tmp_path))
    found = model.hidden(ids, np.ones_like(ids), np.zeros_like(ids))
    close("DistilBertModel, hidden", found, expected)
