"""Relevance scores are computed in full float32, also on devices whose default is bfloat16."""

import ast
import pathlib

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from parallel.same_step_test import stage_and_batches
from support.finished_run import random_params
from support.tiny_corpus import tiny_config

from realm_jax import losses
from realm_jax.data.masked_text import MaskedTextSource
from realm_jax.data.rows import joint_rows, passage_rows
from realm_jax.models.modules import Modules
from realm_jax.report.predictions import _Forward
from realm_jax.retrieval.mesh_searcher import MeshSearcher

ROOT = pathlib.Path(losses.__file__).parent
EMBEDDING = 23  # no other axis has this size
HIGHEST = (jax.lax.Precision.HIGHEST,) * 2
PRODUCTS = {"einsum", "dot", "matmul", "vdot", "tensordot", "dot_general"}
CHECKED = {  # products of numpy arrays, `nDCG @ 10`, and the mesh search, which has a test below
    "retrieval/centering.py",
    "retrieval/mesh_searcher.py",
    "retrieval/exact_searcher.py",
    "inference/judged.py",
    "inference/run.py",
}


def products(jaxpr):
    """All matrix products of a traced function, also those in inner functions."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from products(inner)


def score_precisions(function, *arguments):
    """Precision of each product of two sets of vectors; products with ones are sums."""
    found = []
    for product in products(jax.make_jaxpr(function)(*arguments).jaxpr):
        (contracted, _), _ = product.params["dimension_numbers"]
        shapes = [operand.aval.shape for operand in product.invars]
        if EMBEDDING in [shapes[0][axis] for axis in contracted] and len(shapes[1]) > 1:
            found.append(product.params["precision"])
    return found


@pytest.mark.parametrize(("name", "count"), [("ict", 1), ("realm", 2), ("qa", 2)])
def test_the_scores_of_a_training_stage_have_full_precision(tiny, name, count):
    _, stage, [batch] = stage_and_batches(name, tiny, 1, model__embedding=EMBEDDING)
    params = stage.modules.init(jax.random.key(0))

    def loss(params, batch):
        return stage.loss(stage.modules.bind(params), batch, None)[0]

    assert score_precisions(loss, params, batch) == [HIGHEST] * count


def test_the_gradients_of_the_scores_have_full_precision():
    queries, ids = jnp.ones((5, EMBEDDING)), jnp.arange(5)
    gradient = jax.grad(lambda queries: losses.ict_loss(queries, queries, ids)[0])
    found = [one.params["precision"] for one in products(jax.make_jaxpr(gradient)(queries).jaxpr)]
    assert found == [HIGHEST] * 3


def test_the_scores_of_the_report_have_full_precision(tiny):
    config = tiny_config(tiny.folder, model__layers=1, model__embedding=EMBEDDING)
    size = tiny.store.vocabulary.size
    forward = _Forward.__new__(_Forward)
    forward._modules = Modules(config.model, size, ("embedder", "reader"))
    params = random_params(config, size)
    text = MaskedTextSource(tiny.store, tiny.spans, config).batch(0, 2)
    chosen = np.arange(6).reshape(2, 3)
    arguments = (
        {name: params[name] for name in ("embedder", "reader")},
        text,
        passage_rows(tiny.store, chosen, config.lengths.passage),
        joint_rows(text.queries, tiny.store, chosen, config.lengths.joint),
        jnp.ones((2, 3), bool),
    )
    assert score_precisions(forward._forward, *arguments) == [HIGHEST]


def test_the_scores_of_the_mesh_search_have_full_precision():
    vectors = np.ones((50, EMBEDDING), np.float32)
    searcher = MeshSearcher(vectors)

    def search(vectors, queries):
        return searcher._search(vectors, queries, k=3)

    assert score_precisions(search, searcher.vectors, vectors[:2]) == [HIGHEST]


def test_bfloat16_products_would_change_the_probabilities_of_candidates():
    """The reason for the tests above, with vectors of the size that training gives them."""
    rng = np.random.default_rng(0)
    queries, passages = (rng.normal(1.0, 0.5, (64, 128)).astype(np.float32) for _ in range(2))
    exact = queries.astype(np.float64) @ passages.T.astype(np.float64)

    def error(scores):
        probabilities = jax.nn.softmax(jnp.asarray(scores - exact.max(1, keepdims=True)))
        expected = jax.nn.softmax(jnp.asarray(exact - exact.max(1, keepdims=True)))
        return float(jnp.abs(probabilities - expected).max())

    vectors = [jnp.asarray(one) for one in (queries, passages)]
    rounded = [one.astype(jnp.bfloat16).astype(jnp.float32) for one in vectors]
    assert error(np.asarray(losses.relevance_scores("be,ce->bc", *rounded))) > 0.01
    assert error(np.asarray(losses.relevance_scores("be,ce->bc", *vectors))) < 1e-3


def jax_products(source):
    """Lines with a product that is not `relevance_scores`, numpy's einsum aside."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield node.lineno
        if isinstance(node, ast.Attribute) and node.attr in PRODUCTS:
            owner = node.value.id if isinstance(node.value, ast.Name) else None
            if owner != "np":
                yield node.lineno


def test_no_score_is_a_product_in_default_precision():
    """`models` has products of its own: those of the networks, in the dtype of the config."""
    found = {
        str(path.relative_to(ROOT)): [*jax_products(path.read_text())]
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ("models", "planning", "interop")
    }
    assert {path for path, lines in found.items() if lines} <= CHECKED, found


def test_the_check_finds_products_in_default_precision():
    assert [*jax_products("a @ b\njnp.einsum(c)\njax.numpy.dot(d)\nnp.einsum(e)")] == [1, 2, 3]
