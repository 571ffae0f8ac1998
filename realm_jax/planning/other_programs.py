"""Lowers the programs of the builder, and those of the trainer that embed and search."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from realm_jax.data.embedder_rows import indexed_length
from realm_jax.data.rows import Rows
from realm_jax.index_builder.recall import PROBE_HITS
from realm_jax.parallel.sharding import batch_sharding, param_shardings, replicated
from realm_jax.planning.flops import embed_flops, search_flops
from realm_jax.planning.lowered import LoweredProgram, Target, abstract, lowered, num_bytes
from realm_jax.retrieval.encoder import MAX_QUERIES, Encoder
from realm_jax.retrieval.mesh_retriever import MeshRetriever
from realm_jax.retrieval.mesh_searcher import BLOCK, search_program


def embed(target: Target) -> LoweredProgram:
    """Lowers the embedding of passages of maximum length; each device has a batch."""
    length = indexed_length(target.config)
    rows = max(1, target.config.builder.batch_pieces // length) * target.mesh.size
    return _embed(target, rows, length)


def embed_queries(target: Target) -> LoweredProgram:
    """Lowers the embedding of queries by the retriever of one trainer host."""
    return _embed(target, MAX_QUERIES, target.config.lengths.query)


def embed_rerank(target: Target) -> LoweredProgram:
    """Lowers the embedding of hits with the params of the step (`retrieval.rerank`)."""
    return embed(target)


def _embed(target: Target, rows: int, length: int) -> LoweredProgram:
    encoder = Encoder(target.config, target.vocabulary, target.mesh)
    shapes = jax.eval_shape(encoder.cast, encoder.modules.shapes["embedder"])
    params = abstract(shapes, replicated(target.mesh))
    sharded = NamedSharding(target.mesh, PartitionSpec(target.mesh.axis_names))
    return lowered(
        encoder.program,
        (params, abstract(_rows(rows, length), sharded)),
        target.mesh,
        rows=rows,
        flops=embed_flops(target.config, rows, length),
        parameter_bytes=num_bytes(encoder.modules.shapes),
    )


def search(target: Target) -> LoweredProgram:
    """Lowers the embedding and search of a batch of queries on the mesh (`search.kind=mesh`)."""
    config, mesh = target.config, target.mesh
    retriever = MeshRetriever(config, target.vocabulary, mesh)
    size = config.stages.realm.batch
    modules = retriever.encoder.modules
    shardings = param_shardings(mesh, modules.axes, modules.shapes)
    params = abstract(modules.shapes, shardings)["embedder"]
    queries = abstract(_rows(size, config.lengths.query), batch_sharding(mesh))
    k = max(config.retrieval.candidates, config.evaluation.recall_k)
    return lowered(
        retriever.program,
        (params, _vectors(target), queries),
        mesh,
        static={"k": k, "size": target.passages},
        rows=size,
        flops=search_flops(config, size, _scored(target)),
        parameter_bytes=num_bytes(modules.shapes),
    )


def search_questions(target: Target) -> LoweredProgram:
    """Lowers the search of a batch of questions in a mesh index, before fine-tuning."""
    return _search_vectors(target, MAX_QUERIES, target.config.stages.qa.retriever_passages)


def search_probes(target: Target) -> LoweredProgram:
    """Lowers the search of probe queries in a mesh index, on the devices of the builder."""
    return _search_vectors(target, target.config.builder.probes, PROBE_HITS)


def _search_vectors(target: Target, count: int, k: int) -> LoweredProgram:
    queries = jax.ShapeDtypeStruct((count, target.config.model.embedding), jnp.float32)
    products = 2.0 * count * _scored(target) * target.config.model.embedding
    return lowered(
        search_program(target.passages, target.mesh),
        (_vectors(target), abstract(queries, replicated(target.mesh))),
        target.mesh,
        static={"k": k},
        rows=count,
        flops=products,
    )


def _scored(target: Target) -> int:
    """Rows that all devices score for a query: each scores whole blocks of its rows."""
    local = -(-target.passages // target.mesh.size)
    block = min(BLOCK, local)
    return target.mesh.size * -(-local // block) * block


def _vectors(target: Target) -> jax.ShapeDtypeStruct:
    """The vectors of a mesh index; see `MeshSearcher.vectors`."""
    config, mesh = target.config, target.mesh
    padded = -(-target.passages // mesh.size) * mesh.size
    return jax.ShapeDtypeStruct(
        (padded, config.model.embedding),
        jnp.dtype(config.search.dtype),
        sharding=NamedSharding(mesh, PartitionSpec(mesh.axis_names)),
    )


def _rows(rows: int, length: int) -> Rows:
    """Shapes of input rows; see `data.rows`."""
    return Rows(
        np.zeros((rows, length), np.int32),
        np.zeros((rows, length), bool),
        np.zeros((rows, length), np.int32),
    )
