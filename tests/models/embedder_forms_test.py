"""Every form of the embedder: the same vectors in packed, padded and passage rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_corpus import tiny_config, write_tiny_corpus

from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.pretraining import PretrainingRows
from realm_jax.data.rows import NULL_PASSAGE, query_rows
from realm_jax.models.embedder import null_score_of, temperature_of
from realm_jax.models.modules import Modules
from realm_jax.retrieval.encoder import Encoder

UNIT = {"normalise": True, "projection": "none", "embedding": 16}
FORMS = {
    "paper": {},
    "cls, prompts": {**UNIT, "pooling": "cls", "query_prompt": "what is", "passage_row": "single"},
    "mean, temperature": {
        **UNIT,
        "pooling": "mean",
        "passage_row": "single",
        "passage_prompt": "the",
        "temperature": 0.05,
        "learn_temperature": True,
        "null_score": "learned",
        "null_value": 0.3,
    },
    "max, dense": {"pooling": "max", "projection": "12:tanh 8", "null_score": "fixed"},
    "mean_sqrt_len": {"pooling": "mean_sqrt_len", "projection": "8:gelu", "temperature": 2.0},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_corpus(tmp_path_factory.mktemp("tiny"))


def config_of(form, **more):
    changes = {f"model__{key}": value for key, value in FORMS[form].items()}
    return tiny_config(model__layers=1, model__dropout=0.0, **changes, **more)


DEFAULT = ("paper", "mean, temperature")  # the others are slow: each compiles its own programs
PARAMS = [one if one in DEFAULT else pytest.param(one, marks=pytest.mark.slow) for one in FORMS]


@pytest.fixture(params=PARAMS)
def form(request, tiny):
    config = config_of(request.param)
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    return config, modules, jax.jit(modules.init)(jax.random.key(0))


def test_packed_rows_have_the_vectors_of_padded_rows(tiny, form):
    config, modules, params = form
    text = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 4)
    chosen = np.arange(16).reshape(4, 4)
    chosen[:, 0] = NULL_PASSAGE
    rows = PretrainingRows(config, tiny.store, 2)
    packed = rows.batch(text, chosen, chosen >= 0, rows.widest).embedded
    layout = EmbedderRows(config, tiny.store.vocabulary)
    queries, passages = layout.queries(text.queries), layout.passages(tiny.store, chosen, 40)

    def both(params, packed, queries, passages):
        embedder = modules.bind(params).embedder
        flat = (part.reshape(-1, 40) for part in passages)
        padded = embedder.embed(*queries), embedder.embed(*flat).reshape(4, 4, -1)
        return embedder.embed_packed(*packed), *padded

    found, alone, beside = map(np.asarray, jax.jit(both)(params, packed, queries, passages))
    found = found.reshape(2, 2 + 1 + 6, -1)
    np.testing.assert_allclose(found[:, :2].reshape(4, -1), alone, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[:, 2], beside[::2, 0], rtol=1e-4, atol=1e-5)
    passages = found[:, 3:].reshape(4, 3, -1)
    np.testing.assert_allclose(passages, beside[:, 1:], rtol=1e-4, atol=1e-5)
    builders = Encoder(config, tiny.store.vocabulary.size).embed_passages(
        params["embedder"], tiny.store, chosen[:, 1:].reshape(-1)
    )
    np.testing.assert_allclose(builders.reshape(4, 3, -1), beside[:, 1:], rtol=1e-4, atol=1e-5)
    if config.model.normalise:
        np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=1e-5)


def test_scores_have_a_temperature_and_the_null_passage_a_learned_one(tiny):
    config = config_of("mean, temperature")
    modules = Modules(config.model, tiny.store.vocabulary.size, ("embedder",))
    params = jax.jit(modules.init)(jax.random.key(0))
    queries, passages = jnp.eye(2, 16), jnp.ones((2, 16))

    @jax.jit
    def scores(params):
        embedder = modules.bind({"embedder": params}).embedder
        found = embedder.scores("be,ke->bk", queries, passages)
        return found, embedder.with_null_score(found)[:, 0]

    found, null = scores(params["embedder"])
    np.testing.assert_allclose(found, 1 / 0.05, rtol=1e-6)
    np.testing.assert_allclose(null, 0.3 / 0.05, rtol=1e-6)
    gradients = jax.grad(lambda p: sum(part.sum() for part in scores(p)))(params["embedder"])
    assert gradients["temperature_scale"][0] < 0 < gradients["null_bias"][0]
    moved = params["embedder"] | {"null_bias": jnp.array([0.001])}
    assert float(null_score_of(config.model, moved)) == pytest.approx(0.4 / 0.05)
    assert float(temperature_of(config.model, moved)) == pytest.approx(0.05)


def test_the_rows_of_one_segment_have_prompt_title_and_body(tiny):
    config, words = config_of("mean, temperature"), tiny.store.vocabulary
    layout = EmbedderRows(config, words)
    rows = layout.passages(tiny.store, np.array([4, NULL_PASSAGE]), 40)
    text = f"the {tiny.store.title(4)} {tiny.store.body(4)}"
    expected = [words.cls, *words.pieces([text])[0][0], words.sep]
    assert rows.ids[0][rows.mask[0]].tolist() == expected and not rows.segments.any()
    assert rows.mask[1].sum() == layout.null_length == 3
    starts = layout.body_starts(tiny.store, np.array([4]), 40)
    assert rows.ids[0, starts[0]] == tiny.store.body_ids(4)[0]


def test_a_query_prompt_comes_after_cls(tiny):
    config, words = config_of("cls, prompts"), tiny.store.vocabulary
    layout = EmbedderRows(config, words)
    given = query_rows([words.pieces(["of ora"])[0][0]], config.lengths.query, words)
    rows = layout.queries(given)
    expected = words.pieces(["what is of ora"])[0][0].tolist()
    assert rows.ids.shape == (1, layout.query) == (1, config.lengths.query + 2)
    assert rows.ids[0][rows.mask[0]].tolist() == [words.cls, *expected, words.sep]
