"""FLOPs of each program, computed from the config.

Only matrix products count (2 a b c for [a, b] x [b, c]); element-wise work does not. Nor do the
span head of stages `reader` and `qa` and the scores of `qa`. Every row has its maximum length,
because the gain of packing (`data.packing`) depends on the corpus. The row that embeds the null
passage (three word pieces) is not counted. A backward pass costs two forward passes. Recomputing
activations costs one more forward pass of the layers (`model.remat=full`), or their projections to
queries, keys and values and their scores (`attention`).
"""

import itertools

from ml_collections import ConfigDict

from realm_jax.config_checks import OVER_TOKENS, dense_layers


def train_flops(config: ConfigDict, stage: str, vocabulary: int) -> float:
    """FLOPs of one training step over all devices.

    Args:
      config: of the run.
      stage: `reader`, `ict`, `realm` or `qa`.
      vocabulary: V, size of the vocabulary.
    """
    layers, heads = _forward_flops(config, stage, vocabulary)
    reference = _reference_flops(config, stage)
    return 3 * (layers + heads) + recomputed_flops(config, stage, vocabulary) + reference


def recomputed_flops(config: ConfigDict, stage: str, vocabulary: int) -> float:
    """Those of the FLOPs of `train_flops` that recompute activations."""
    if config.model.remat == "full":
        return _forward_flops(config, stage, vocabulary)[0]
    if config.model.remat == "none":
        return 0.0
    model = config.model
    return sum(
        rows * model.layers * (6.0 * length * model.hidden**2 + 2.0 * length**2 * model.hidden)
        for rows, length, _ in _encoded(config, stage)
    )


def evaluation_flops(config: ConfigDict, stage: str, vocabulary: int) -> float:
    """FLOPs of the evaluation of one batch: a forward pass; see `train_flops`."""
    return sum(_forward_flops(config, stage, vocabulary))


def _forward_flops(config: ConfigDict, stage: str, vocabulary: int) -> tuple[float, float]:
    """FLOPs of a forward pass of one batch: in BERT's layers, and in everything above them."""
    model, lengths, batch = config.model, config.lengths, config.stages[stage].batch
    layers = sum(encoder_flops(model, *rows) for rows in _encoded(config, stage))
    heads = 0.0
    if stage == "reader":
        heads += _masked_lm_flops(model, batch * lengths.masks, vocabulary)
    elif stage == "ict":
        heads += embedding_head_flops(model, 2 * batch)
        heads += 2.0 * batch * batch * model.embedding
    elif stage == "realm":
        count = config.retrieval.candidates
        heads += embedding_head_flops(model, batch * count + 1)
        heads += _masked_lm_flops(model, batch * count * lengths.masks, vocabulary)
        heads += 2.0 * batch * count * model.embedding
    return layers, heads


def _reference_flops(config: ConfigDict, stage: str) -> float:
    """FLOPs of the vectors before the stage, which `distance_penalty` needs."""
    if stage not in ("ict", "realm") or not config.stages[stage].distance_penalty:
        return 0.0
    queries, passages, *_ = _encoded(config, stage)
    return sum(embed_flops(config, rows, length) for rows, length, _ in (queries, passages))


def _encoded(config: ConfigDict, stage: str) -> list[tuple[int, int, int | None]]:
    """The rows that a stage encodes for a batch: number, length, and wanted positions of each."""
    lengths, batch, wanted = (
        config.lengths,
        config.stages[stage].batch,
        _read_by_pooling(config.model),
    )
    if stage == "reader":
        return [(batch, lengths.joint, None)]
    queries = (batch, lengths.query, wanted)
    if stage == "qa":
        return [queries, (batch * config.stages.qa.reader_passages, lengths.joint, None)]
    if stage == "ict":
        return [queries, (batch, lengths.passage, wanted)]
    retrieved = batch * (config.retrieval.candidates - 1)
    return [
        queries,
        (retrieved, lengths.passage, wanted),
        (retrieved, lengths.joint, lengths.masks),
        (batch, lengths.query + 1, lengths.masks),  # the query and the null passage
    ]


def _masked_lm_flops(model: ConfigDict, masks: int, vocabulary: int) -> float:
    return 2.0 * masks * (model.hidden**2 + model.hidden * vocabulary)


def search_flops(config: ConfigDict, queries: int, passages: int) -> float:
    """FLOPs of embedding queries and of their inner products with all passages."""
    wanted = _read_by_pooling(config.model)
    layers = encoder_flops(config.model, queries, config.lengths.query, wanted)
    products = 2.0 * queries * passages * config.model.embedding
    return layers + embedding_head_flops(config.model, queries) + products


def embed_flops(config: ConfigDict, rows: int, length: int) -> float:
    """FLOPs of embedding `rows` rows of `length` word pieces."""
    layers = encoder_flops(config.model, rows, length, _read_by_pooling(config.model))
    return layers + embedding_head_flops(config.model, rows)


def encoder_flops(model: ConfigDict, rows: int, length: int, wanted: int | None = None) -> float:
    """FLOPs of the forward pass of BERT's layers.

    Args:
      model: config.model.
      rows: number of rows R.
      length: length L of each row in word pieces.
      wanted: positions per row that the last layer computes (`Bert.at`); None is all.
    """
    attention = 6.0 * length * model.hidden**2 + 4.0 * length**2 * model.hidden  # q, k, v; scores
    per_position = 2.0 * model.hidden**2 + 4.0 * model.hidden * model.mlp  # output, feed-forward
    unused = 0 if wanted is None else length - wanted
    return rows * (model.layers * (attention + length * per_position) - unused * per_position)


def _read_by_pooling(model: ConfigDict) -> int | None:
    """Positions of a row that the embedder's pooling reads: [CLS], or None for all."""
    return None if model.pooling in OVER_TOKENS else 1


def embedding_head_flops(model: ConfigDict, rows: int) -> float:
    """FLOPs of the forward pass of the layers between the encoder and the vector."""
    pooler = model.hidden**2 if model.pooling == "pooler" else 0
    widths = [model.hidden, *(width for width, _ in dense_layers(model.projection))]
    if model.projection == "layer_norm":
        widths.append(model.embedding)
    return 2.0 * rows * (pooler + sum(a * b for a, b in itertools.pairwise(widths)))
