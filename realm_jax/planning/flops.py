"""How many floating-point operations each step asks for, counted on paper.

Products of matrices only (2 a b c for [a, b] x [b, c]); what is done element by element is left
out. Rows count at their longest, since what packing saves of them (`data.packing`) is the corpus's
to say; the null passage's own row of three pieces is left out. A gradient costs twice its forward
pass, and layers whose activations are recomputed (`model.remat`) one more forward pass.
"""

from ml_collections import ConfigDict


def train_flops(config: ConfigDict, stage: str, vocabulary: int) -> float:
    """Of one training step over all devices.

    Args:
      config: of the run.
      stage: `ict`, `realm` or `qa`.
      vocabulary: V, word pieces.
    """
    model, lengths, batch = config.model, config.lengths, config.stages[stage].batch
    layers = encoder_flops(model, batch, lengths.query, wanted=1)
    heads = 0.0
    if stage == "qa":
        layers += encoder_flops(model, batch * config.stages.qa.reader_passages, lengths.joint)
    elif stage == "ict":
        layers += encoder_flops(model, batch, lengths.passage, wanted=1)
        heads += embedding_head_flops(model, 2 * batch)
        heads += 2.0 * batch * batch * model.embedding
    else:
        count = config.retrieval.candidates
        layers += encoder_flops(model, batch * (count - 1), lengths.passage, wanted=1)
        layers += encoder_flops(model, batch * (count - 1), lengths.joint, lengths.masks)
        alone = lengths.query + 1  # beside the null passage
        layers += encoder_flops(model, batch, alone, lengths.masks)
        heads += embedding_head_flops(model, batch * count + 1)
        masks = batch * count * lengths.masks
        heads += 2.0 * masks * (model.hidden**2 + model.hidden * vocabulary)
        heads += 2.0 * batch * count * model.embedding
    return 3 * (layers + heads) + (layers if model.remat else 0)


def embed_flops(config: ConfigDict, rows: int) -> float:
    """Of embedding `rows` passages of full length."""
    layers = encoder_flops(config.model, rows, config.lengths.passage, wanted=1)
    return layers + embedding_head_flops(config.model, rows)


def encoder_flops(model: ConfigDict, rows: int, length: int, wanted: int | None = None) -> float:
    """BERT's layers, forward, on rows of `length` pieces.

    Args:
      model: config.model.
      rows: R.
      length: L.
      wanted: pieces of a row that the last layer puts out (`Bert.at`); None is all.
    """
    before = 6.0 * length * model.hidden**2 + 4.0 * length**2 * model.hidden  # q, k, v; attention
    after = 2.0 * model.hidden**2 + 4.0 * model.hidden * model.mlp  # of one piece
    unwanted = 0 if wanted is None else length - wanted
    return rows * (model.layers * (before + length * after) - unwanted * after)


def embedding_head_flops(model: ConfigDict, rows: int) -> float:
    """The pooled first piece and its projection, forward."""
    return 2.0 * rows * (model.hidden**2 + model.hidden * model.embedding)
