"""Our numbers against the published implementations, on random weights: `make test-parity`.

REALM's classes are in transformers up to 4.40.2; BertModel is held against whatever version is
installed, sentence-transformers against its own. Every weight goes the road that users take:
`save_pretrained`, import, load.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import realm_jax.interop
from realm_jax import losses
from realm_jax.interop.lazy import Lazy
from realm_jax.interop.names import SPAN_HEAD, network_of, to_bert_names
from realm_jax.interop.recognise import recognise
from realm_jax.interop.sentence_layout import write_sentence_transformers
from realm_jax.interop.weights import open_weights, write_weights
from realm_jax.models.modules import Modules
from realm_jax.models.span_head import IMPOSSIBLE
from realm_jax.testing.fakes import vocabulary
from realm_jax.text.wordpiece import WordPieces

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore"),  # of torch and transformers
]
NOT_HERE = "is not installed: make test-parity"
torch = pytest.importorskip("torch", reason=f"torch {NOT_HERE}")
transformers = pytest.importorskip("transformers", reason=f"transformers {NOT_HERE}")

MOST = 1e-4  # largest difference over largest value
CLOSEST: dict[str, float] = {}  # what was compared -> the largest relative difference seen
B, K, L, M, WIDEST = 2, 3, 20, 4, 5
SIZES = {
    "narrow": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "deep": {"hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 6},
    "wide": {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6},
}
REALM = {
    "narrow": {"retriever_proj_size": 16, "span_hidden_size": 256},
    "deep": {"retriever_proj_size": 24, "span_hidden_size": 16},
    "wide": {"retriever_proj_size": 128, "span_hidden_size": 128},
}
V = len(vocabulary())
each_size = pytest.mark.parametrize("size", SIZES)
each_seed = pytest.mark.parametrize("seed", [0, 1])


def the_class(name):
    found = getattr(transformers, name, None)
    if found is None or not hasattr(found, "from_pretrained") or not _works(name):
        pytest.skip(f"{name} is not in transformers {transformers.__version__}: 4.40.2 has it")
    return found


def _works(name):
    return not name.startswith("Realm") or transformers.__version__.startswith("4.")


def drawn(name, size, seed, **more):
    """A model of theirs whose every parameter is random, in evaluation mode."""
    kind = "Realm" if name.startswith("Realm") else "Bert"
    own = {"vocab_size": V, "max_position_embeddings": 64, **SIZES[size], **more}
    own["intermediate_size"] = 3 * own["hidden_size"]
    if kind == "Realm":
        own |= {**REALM[size], "num_candidates": K, "num_block_records": 5}
        own |= {"max_span_width": WIDEST, "reader_beam_size": K, "searcher_beam_size": K}
    model = the_class(name)(getattr(transformers, f"{kind}Config")(**own))
    torch.manual_seed(seed)
    with torch.no_grad():
        for place, parameter in model.named_parameters():
            scale = place.lower().endswith(("layernorm.weight", "layer_normalization.weight"))
            spread = 2 * own["hidden_size"] ** -0.5 if parameter.ndim > 1 else 0.3
            parameter.normal_(float(scale), spread)
    model.tie_weights()
    return model.eval()


def ours(theirs, folder, **how):
    """The same model, saved by them, imported and loaded by us."""
    theirs.save_pretrained(folder / "theirs", **how)
    weights = open_weights(folder / "theirs")
    assert weights.missing == []
    assert weights.unused == []
    write_weights(folder / "ours", weights)
    return realm_jax.interop.load(str(folder / "ours"))


def rows(seed, count, shape=()):
    """ids, mask, segments of joint rows with padding, int64 as torch wants them."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, V, (count, L))
    used = rng.integers(12, L + 1, (count, 1))
    used[0] = L
    mask = (np.arange(L) < used).astype(np.int64)
    segments = ((np.arange(L) >= rng.integers(4, 8, (count, 1))) * mask).astype(np.int64)
    return [part.reshape(*shape, count, L) if shape else part for part in (ids, mask, segments)]


def named(parts):
    keys = ("input_ids", "attention_mask", "token_type_ids")
    return {key: torch.tensor(part) for key, part in zip(keys, parts, strict=True)}


def close(what, mine, other):
    """Holds the largest difference, relative to the largest value, under 1e-4."""
    mine = np.asarray(mine)
    other = other.detach().numpy() if hasattr(other, "detach") else np.asarray(other)
    assert mine.shape == other.shape
    difference = float(np.abs(mine - other).max() / np.abs(other).max())
    CLOSEST[what] = max(CLOSEST.get(what, 0.0), difference)
    assert difference < MOST, what


def close_gradients(what, tree, theirs):
    """Our gradients under their names against those that torch left in `.grad`."""
    grads = {
        name: Lazy(tuple(p.shape), lambda p=p: p.grad.numpy())
        for name, p in theirs.named_parameters()
        if p.grad is not None
    }
    # A gradient has no second copy of the decoder: torch sums both uses of the word table.
    expected = {
        name: array
        for network in recognise(grads, {"architectures": [_architecture(tree)]}).networks.values()
        for name, array in network.items()
    }
    found = to_bert_names(jax.device_get(tree))
    largest = max(np.abs(array).max() for array in expected.values())
    without = {name: found.pop(name) for name in found.keys() - expected.keys()}
    assert not any(np.any(array) for array in without.values())  # torch keeps none of those
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        # Biases that cannot matter, as those of keys, have gradients of nothing but rounding.
        scale = max(np.abs(array).max(), 1e-2 * largest)
        difference = float(np.abs(found[name] - array).max() / scale)
        CLOSEST[what] = max(CLOSEST.get(what, 0.0), difference)
        assert difference < MOST, f"{what}: {name}"


def _architecture(tree):
    if "projection" in tree:
        return "RealmEmbedder"
    return "RealmReader" if SPAN_HEAD in tree else "RealmKnowledgeAugEncoder"


def bound(model, network, names):
    """Modules of ours and the parameters that `model` has for them."""
    weights = model.weights
    modules = Modules(weights.sizes.model(), weights.sizes.vocabulary, names)
    parts = weights.parts(network)
    return modules, {name: network_of(parts, name) for name in names}


@each_seed
@each_size
def test_embedder(tmp_path, size, seed):
    theirs = drawn("RealmEmbedder", size, seed)
    model = ours(theirs, tmp_path)
    assert model.weights.kind == "embedder" or "embedder" in model.weights.networks
    parts = rows(seed, 5)
    close("RealmEmbedder, vectors", model.embed(*parts), theirs(**named(parts)).projected_score)


@each_seed
@each_size
def test_scorer(tmp_path, size, seed):
    theirs = drawn("RealmScorer", size, seed)
    model = ours(theirs, tmp_path, safe_serialization=False)
    queries, candidates = rows(seed, B), rows(seed + 9, B * K)
    of_candidates = named([part.reshape(B, K, L) for part in candidates])
    found = theirs(**named(queries), **{f"candidate_{k}": v for k, v in of_candidates.items()})
    vectors = model.embed(*candidates).reshape(B, K, -1)
    scores = jnp.einsum("be,bke->bk", model.embed_queries(*queries), vectors)
    close("RealmScorer, relevance scores", scores, found.relevance_score)
    close("RealmScorer, candidate vectors", vectors, found.candidate_score)


@each_seed
@each_size
def test_encoder(tmp_path, size, seed):
    theirs = drawn("RealmKnowledgeAugEncoder", size, seed)
    model = ours(theirs, tmp_path)
    parts = rows(seed, K)
    positions = np.random.default_rng(seed).integers(0, L, (K, M))
    logits = theirs(**{key: part[None] for key, part in named(parts).items()}).logits
    picked = logits[torch.arange(K)[:, None], torch.tensor(positions)]
    close("RealmKnowledgeAugEncoder, logits", model.mlm_logits(*parts, positions), picked)


@each_seed
@each_size
def test_marginal_loss_and_all_its_gradients(tmp_path, size, seed):
    scorer = drawn("RealmScorer", size, seed)
    encoder = drawn("RealmKnowledgeAugEncoder", size, seed + 5)
    queries, candidates, joint = rows(seed, B), rows(seed + 1, B * K), rows(seed + 2, B * K)
    rng = np.random.default_rng(seed)
    positions = np.stack([rng.choice(L, M, replace=False) for _ in range(B)])
    targets, weights = rng.integers(0, V, (B, M)), np.ones((B, M), np.float32)
    weights[1, 2:] = 0

    labels, counted = np.zeros((B, L), np.int64), np.zeros((B, L), np.int64)
    np.put_along_axis(labels, positions, targets, 1)
    np.put_along_axis(counted, positions, weights.astype(np.int64), 1)
    by_candidate = named([part.reshape(B, K, L) for part in candidates])
    scores = scorer(**named(queries), **{f"candidate_{k}": v for k, v in by_candidate.items()})
    # Scores in the hundreds would leave one candidate, and gradients of nothing but rounding.
    gentle = 1 / float(scores.relevance_score.detach().std(-1).mean())
    relevance = scores.relevance_score * gentle
    found = encoder(
        **named([part.reshape(B, K, L) for part in joint]),
        relevance_score=relevance,
        labels=torch.tensor(labels),
        mlm_mask=torch.tensor(counted),
    )
    found.loss.backward()

    of_scorer = bound(ours(scorer, tmp_path / "s", safe_serialization=False), "embedder",
                      ("embedder",))  # fmt: skip
    of_encoder = bound(ours(encoder, tmp_path / "e"), "bert", ("reader",))

    def loss(parameters):
        embedder = of_scorer[0].bind(parameters).embedder
        reader = of_encoder[0].bind(parameters).reader
        asked = embedder.embed(*as_ours(queries))
        offered = embedder.embed(*as_ours(candidates)).reshape(B, K, -1)
        relevance = gentle * jnp.einsum("be,bke->bk", asked, offered)
        places = jnp.repeat(jnp.asarray(positions), K, axis=0)
        logits = reader.mlm_logits(*as_ours(joint), places).reshape(B, K, M, V)
        log_p = losses.token_log_probs(logits, jnp.repeat(jnp.asarray(targets)[:, None], K, 1))
        valid = jnp.ones((B, K), bool)
        return losses.realm_loss(relevance, log_p, jnp.asarray(weights), valid, "released")[0]

    parameters = jax.tree.map(jnp.asarray, of_scorer[1] | of_encoder[1])
    value, gradients = jax.jit(jax.value_and_grad(loss))(parameters)
    close("marginal loss", value, found.loss)
    close_gradients("marginal loss, gradients of the embedder", gradients["embedder"],
                    scorer.embedder)  # fmt: skip
    close_gradients("marginal loss, gradients of the encoder", gradients["reader"], encoder)


def as_ours(parts):
    ids, mask, segments = (jnp.asarray(part) for part in parts)
    return ids, mask.astype(bool), segments


def passage_mask(mask, segments):
    """Their block mask: segment 1 without the closing piece."""
    body = (mask * segments).astype(bool)
    return body & np.roll(body, -1, 1) & (np.arange(L) < L - 1)


def by_span(logits, starts, ends):
    """Their scores [rows, spans] as ours [rows, L, W], -10,000 where they have none."""
    found = np.full((len(logits), L, WIDEST), IMPOSSIBLE, np.float32)
    found[:, starts, ends - starts] = logits.detach().numpy()
    return np.where(found < IMPOSSIBLE, IMPOSSIBLE, found)


@each_seed
@each_size
def test_reader(tmp_path, size, seed):
    theirs = drawn("RealmReader", size, seed)
    model = ours(theirs, tmp_path, safe_serialization=False)
    parts = rows(seed, K)
    block = torch.tensor(passage_mask(*parts[1:]))
    hidden = theirs.realm(**named(parts)).last_hidden_state
    expected = by_span(*theirs.qa_outputs(hidden, block))
    found = np.asarray(model.span_logits(*parts))
    possible = expected > IMPOSSIBLE
    assert possible.any()
    np.testing.assert_array_equal(found > IMPOSSIBLE, possible)
    close("RealmReader, hidden", model.hidden(*parts), hidden)
    close("RealmReader, span scores", found[possible], expected[possible])


@each_seed
@each_size
def test_reader_loss_and_its_gradients(tmp_path, size, seed):
    theirs = drawn("RealmReader", size, seed)
    model = ours(theirs, tmp_path, safe_serialization=False)
    parts = rows(seed, K)
    block = passage_mask(*parts[1:])
    scores = np.random.default_rng(seed).normal(0, 1, K).astype(np.float32)
    gold = np.full((K, 1), -1)
    first = [int(np.flatnonzero(row)[0]) for row in block]
    gold[0], gold[2] = first[0], first[2]
    has_answer = gold[:, 0] >= 0
    relevance = torch.tensor(scores, requires_grad=True)
    found = theirs(
        **named(parts),
        relevance_score=relevance,
        block_mask=torch.tensor(block),
        start_positions=torch.tensor(gold),
        end_positions=torch.tensor(np.where(gold >= 0, gold + 1, -1)),
        has_answers=torch.tensor(has_answer),
    )
    found.loss.backward()
    modules, parameters = bound(model, "reader", ("reader", SPAN_HEAD))
    is_gold = np.zeros((K, L, WIDEST), bool)
    is_gold[[0, 2], [first[0], first[2]], 1] = True

    def loss(parameters, scores):
        networks = modules.bind(parameters)
        ids, mask, segments = as_ours(parts)
        hidden = networks.reader.bert(ids, mask, segments)
        spans = networks.span_head.span_logits(hidden, mask, segments, WIDEST)
        return losses.open_qa_loss(
            scores[None],
            jnp.asarray(has_answer)[None],
            jnp.ones((1, K), bool),
            (spans + scores[:, None, None]).reshape(1, -1),
            jnp.asarray(is_gold).reshape(1, -1),
            (spans > IMPOSSIBLE).reshape(1, -1),
        )[0]

    arrays = jax.tree.map(jnp.asarray, parameters)
    value, (gradients, of_scores) = jax.jit(jax.value_and_grad(loss, (0, 1)))(arrays, scores)
    close("RealmReader, loss", value, found.loss)
    close("RealmReader, gradient of the relevance scores", of_scores, relevance.grad)
    tree = gradients["reader"] | {SPAN_HEAD: gradients[SPAN_HEAD]}
    close_gradients("RealmReader, gradients", tree, theirs)


@each_seed
@each_size
def test_openqa(tmp_path, size, seed):
    theirs = drawn("RealmForOpenQA", size, seed)
    model = ours(theirs, tmp_path, safe_serialization=False)
    parts = rows(seed, K)
    vectors = theirs.embedder(**named(parts)).projected_score
    close("RealmForOpenQA, question vectors", model.embed_queries(*parts), vectors)
    hidden = theirs.reader.realm(**named(parts)).last_hidden_state
    block = torch.tensor(passage_mask(*parts[1:]))
    expected = by_span(*theirs.reader.qa_outputs(hidden, block))
    found = np.asarray(model.span_logits(*parts))
    possible = expected > IMPOSSIBLE
    close("RealmForOpenQA, span scores", found[possible], expected[possible])


@each_seed
@each_size
@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_bert_model(tmp_path, size, seed, act):
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
def test_bert_for_masked_lm(tmp_path, size, seed):
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
    """Weights of an embedder of ours, which no other tool has seen."""
    from realm_jax.interop.weights import of_networks
    from realm_jax.testing.fakes import tiny_config

    config = tiny_config(model__init_stddev=0.3)
    networks = Modules(config.model, V, ("embedder", "reader", SPAN_HEAD)).init(jax.random.key(3))
    networks = jax.tree.map(lambda x: x + 0.1 * jnp.sin(jnp.arange(x.size)).reshape(x.shape),
                            jax.device_get(networks))  # fmt: skip
    return of_networks(networks, config.model, WIDEST, pieces)


def test_what_we_export_is_a_bert_model_to_them(tmp_path, embedder):
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


def test_what_we_export_is_a_sentence_transformer_to_them(tmp_path, embedder, pieces):
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


def test_the_largest_differences_of_all_are_told(capsys):
    with capsys.disabled():
        print()
        for what, difference in sorted(CLOSEST.items()):
            print(f"transformers {transformers.__version__}: {what}: {difference:.1e}")
    assert CLOSEST and max(CLOSEST.values()) < MOST
