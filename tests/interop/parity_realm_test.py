"""Networks and losses equal the REALM classes of transformers: `make test-parity`."""

import jax
import jax.numpy as jnp
import numpy as np
from peers import (
    PARITY,
    WIDEST,
    B,
    K,
    L,
    M,
    V,
    as_ours,
    bound,
    close,
    close_gradients,
    drawn,
    each_seed,
    each_size,
    named,
    ours,
    rows,
    torch,
)

from realm_jax import losses
from realm_jax.interop.names import SPAN_HEAD
from realm_jax.models.span_head import INVALID_SPAN_SCORE

pytestmark = PARITY


def passage_mask(mask, segments):
    """The block mask of transformers: segment 1 without the last [SEP]."""
    body = (mask * segments).astype(bool)
    return body & np.roll(body, -1, 1) & (np.arange(L) < L - 1)


def by_span(logits, starts, ends):
    """Converts span scores [rows, spans] of transformers to [rows, L, W]; -10,000 if absent."""
    found = np.full((len(logits), L, WIDEST), INVALID_SPAN_SCORE, np.float32)
    found[:, starts, ends - starts] = logits.detach().numpy()
    return np.where(found < INVALID_SPAN_SCORE, INVALID_SPAN_SCORE, found)


@each_seed
@each_size
def test_embedder_gives_the_same_vectors(tmp_path, size, seed):
    theirs = drawn("RealmEmbedder", size, seed)
    model = ours(theirs, tmp_path)
    assert model.weights.kind == "embedder" or "embedder" in model.weights.networks
    parts = rows(seed, 5)
    close("RealmEmbedder, vectors", model.embed(*parts), theirs(**named(parts)).projected_score)


@each_seed
@each_size
def test_scorer_gives_the_same_scores(tmp_path, size, seed):
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
def test_encoder_gives_the_same_logits(tmp_path, size, seed):
    theirs = drawn("RealmKnowledgeAugEncoder", size, seed)
    model = ours(theirs, tmp_path)
    parts = rows(seed, K)
    positions = np.random.default_rng(seed).integers(0, L, (K, M))
    logits = theirs(**{key: part[None] for key, part in named(parts).items()}).logits
    picked = logits[torch.arange(K)[:, None], torch.tensor(positions)]
    close("RealmKnowledgeAugEncoder, logits", model.mlm_logits(*parts, positions), picked)


@each_seed
@each_size
def test_marginal_loss_and_all_gradients_are_the_same(tmp_path, size, seed):
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
    # With scores in the hundreds, p(z|x) is one-hot and gradients are only rounding errors.
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


def readers(folder, size, seed):
    """Their reader with random weights, ours with the same, and rows for both."""
    theirs = drawn("RealmReader", size, seed)
    return theirs, ours(theirs, folder, safe_serialization=False), rows(seed, K)


@each_seed
@each_size
def test_reader_gives_the_same_span_scores(tmp_path, size, seed):
    theirs, model, parts = readers(tmp_path, size, seed)
    block = torch.tensor(passage_mask(*parts[1:]))
    hidden = theirs.realm(**named(parts)).last_hidden_state
    expected = by_span(*theirs.qa_outputs(hidden, block))
    found = np.asarray(model.span_logits(*parts))
    possible = expected > INVALID_SPAN_SCORE
    assert possible.any()
    np.testing.assert_array_equal(found > INVALID_SPAN_SCORE, possible)
    close("RealmReader, hidden", model.hidden(*parts), hidden)
    close("RealmReader, span scores", found[possible], expected[possible])


@each_seed
@each_size
def test_reader_loss_and_its_gradients_are_the_same(tmp_path, size, seed):
    theirs, model, parts = readers(tmp_path, size, seed)
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
            (spans > INVALID_SPAN_SCORE).reshape(1, -1),
        )[0]

    arrays = jax.tree.map(jnp.asarray, parameters)
    value, (gradients, of_scores) = jax.jit(jax.value_and_grad(loss, (0, 1)))(arrays, scores)
    close("RealmReader, loss", value, found.loss)
    close("RealmReader, gradient of the relevance scores", of_scores, relevance.grad)
    tree = gradients["reader"] | {SPAN_HEAD: gradients[SPAN_HEAD]}
    close_gradients("RealmReader, gradients", tree, theirs)


@each_seed
@each_size
def test_openqa_gives_the_same_vectors_and_span_scores(tmp_path, size, seed):
    theirs = drawn("RealmForOpenQA", size, seed)
    model = ours(theirs, tmp_path, safe_serialization=False)
    parts = rows(seed, K)
    vectors = theirs.embedder(**named(parts)).projected_score
    close("RealmForOpenQA, question vectors", model.embed_queries(*parts), vectors)
    hidden = theirs.reader.realm(**named(parts)).last_hidden_state
    block = torch.tensor(passage_mask(*parts[1:]))
    expected = by_span(*theirs.reader.qa_outputs(hidden, block))
    found = np.asarray(model.span_logits(*parts))
    possible = expected > INVALID_SPAN_SCORE
    close("RealmForOpenQA, span scores", found[possible], expected[possible])
