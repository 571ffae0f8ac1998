"""Recall of masked sentences with any embedder: untrained, after ICT, after REALM."""

import numpy as np
from ml_collections import ConfigDict

from realm_jax.data.masked_text import MaskedText
from realm_jax.metrics import recall_at
from realm_jax.models.modules import Parameters
from realm_jax.retrieval.encoder import PassageEmbedder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.retriever import Retriever
from realm_jax.trainer.inputs import Inputs


class _Unpublished:
    """An index made on the spot, for measuring only."""

    def __init__(self, vectors: np.ndarray, parameters: Parameters):
        self.step, self.searcher, self.query_params = 0, ExactSearcher(vectors), parameters
        self.rows = np.arange(len(vectors), dtype=np.int64)


def masked_recall(
    config: ConfigDict, inputs: Inputs, text: MaskedText, embedder: Parameters
) -> float:
    """Recall@k (k is `evaluation.neighbours`) over the sentences whose evidence is known.

    Exact search over the whole knowledge corpus, embedded here with the same parameters.
    """
    numbers = np.arange(len(inputs.knowledge), dtype=np.int64)
    vectors = PassageEmbedder(config, inputs.knowledge, embedder).vectors(numbers)
    retriever = Retriever(config, inputs.knowledge.vocabulary.size)
    k = config.evaluation.neighbours
    found = retriever.hits(_Unpublished(vectors, embedder), text.queries, k)
    known = text.evidence >= 0
    return float(recall_at(found[known], text.evidence[known], k).mean())
