"""Equality with BERT of transformers, and other libraries load our exports: `make test-parity`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from peers import (
    PARITY,
    WIDEST,
    M,
    V,
    close,
    drawn,
    each_seed,
    each_size,
    named,
    ours,
    rows,
    the_class,
    torch,
)
from support.tiny_corpus import vocabulary

import realm_jax.interop
from realm_jax.interop.names import SPAN_HEAD
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.interop.weights import write_weights
from realm_jax.models.modules import Modules
from realm_jax.text.wordpiece import WordPieces

pytestmark = PARITY


@each_seed
@each_size
@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_bert_model_gives_the_same_outputs(tmp_path, size, seed, act):
    theirs = drawn("BertModel", size, seed, hidden_act=act)
    model = ours(theirs, tmp_path)
    parts = rows(seed, 4)
    expected = theirs(**named(parts))
    real = parts[1].astype(bool)
    found = np.asarray(model.hidden(*parts))
    close("BertModel, hidden", found[real], expected.last_hidden_state[torch.tensor(real)])
    close("BertModel, pooled", model.embed(*parts), expected.pooler_output)


@each_seed
@each_size
def test_bert_for_masked_lm_gives_the_same_logits(tmp_path, size, seed):
    theirs = drawn("BertForMaskedLM", size, seed, hidden_act="gelu")
    model = ours(theirs, tmp_path)
    parts = rows(seed, 4)
    positions = np.random.default_rng(seed).integers(0, 12, (4, M))
    logits = theirs(**named(parts)).logits[torch.arange(4)[:, None], torch.tensor(positions)]
    close("BertForMaskedLM, logits", model.mlm_logits(*parts, positions), logits)


@pytest.fixture
def pieces(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in vocabulary()))
    return path


@pytest.fixture
def embedder(tmp_path, pieces):
    """Random params of our embedder."""
    from support.tiny_corpus import tiny_config

    from realm_jax.interop.weights import weights_of_run

    config = tiny_config(model__init_stddev=0.3)
    networks = Modules(config.model, V, ("embedder", "reader", SPAN_HEAD)).init(jax.random.key(3))
    networks = jax.tree.map(lambda x: x + 0.1 * jnp.sin(jnp.arange(x.size)).reshape(x.shape),
                            jax.device_get(networks))  # fmt: skip
    return weights_of_run(networks, config.model, WIDEST, pieces)


def test_transformers_loads_our_export_as_bert(tmp_path, embedder):
    write_weights(tmp_path / "out", embedder)
    parts = [part[:, :] for part in rows(0, 4)]
    model = realm_jax.interop.load(str(tmp_path / "out"))
    theirs = the_class("BertModel").from_pretrained(tmp_path / "out" / "embedder").eval()
    pooled = theirs(**named(parts)).pooler_output.detach().numpy()
    names = embedder.networks["embedder"]
    projected = pooled @ names["cls.dense.weight"].T + names["cls.dense.bias"]
    centred = projected - projected.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    expected = normed * names["cls.LayerNorm.weight"] + names["cls.LayerNorm.bias"]
    close("our embedder, exported, as BertModel and projection", model.embed(*parts), expected)
    reader = the_class("BertForMaskedLM").from_pretrained(tmp_path / "out" / "reader").eval()
    positions = np.random.default_rng(0).integers(0, 12, (4, M))
    logits = reader(**named(parts)).logits[torch.arange(4)[:, None], torch.tensor(positions)]
    close("our reader, exported, as BertForMaskedLM", model.mlm_logits(*parts, positions), logits)


def test_sentence_transformers_loads_our_export(tmp_path, embedder, pieces):
    sentences = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is in the current extra only"
    )
    only = embedder.only("embedder")
    folder = tmp_path / "st"
    write_sentence_transformers(folder, only.networks["embedder"], only.sizes, pieces)
    theirs = sentences.SentenceTransformer(str(folder), device="cpu")
    words = WordPieces.load(pieces)
    question, title, body = "What is the capital?", "Ora", "The river in ora was 7."
    as_ids = [list(words.pieces([text])[0][0]) for text in (question, title, body)]
    query = [words.cls, *as_ids[0], words.sep]
    passage = [words.cls, *as_ids[1], words.sep, *as_ids[2], words.sep]
    segments = [0] * (2 + len(as_ids[1])) + [1] * (1 + len(as_ids[2]))
    model = realm_jax.interop.load(str(folder))
    for what, given, ids, segs in (
        ("query", question, query, [0] * len(query)),
        ("passage", (title, body), passage, segments),
    ):
        found = theirs.encode([given])
        mine = model.embed(np.array([ids]), np.ones((1, len(ids)), int), np.array([segs]))
        close(f"sentence-transformers {sentences.__version__}, {what}", mine, found)
