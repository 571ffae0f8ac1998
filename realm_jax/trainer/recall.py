"""Recall@k of masked sentences with any embedder: untrained, after ICT, after REALM."""

import numpy as np
from ml_collections import ConfigDict

from realm_jax.data.masked_text import MaskedText
from realm_jax.metrics import recall_at
from realm_jax.models.modules import Parameters
from realm_jax.retrieval.encoder import Encoder
from realm_jax.retrieval.exact_searcher import ExactSearcher
from realm_jax.retrieval.host_retriever import HostRetriever
from realm_jax.trainer.inputs import Inputs


class _LocalIndex:
    """An exact index in memory, with the interface of a published one."""

    def __init__(self, vectors: np.ndarray, params: Parameters):
        self.step, self.searcher, self.query_params = 0, ExactSearcher(vectors), params
        self.rows = np.arange(len(vectors), dtype=np.int64)


def masked_recall(
    config: ConfigDict, inputs: Inputs, text: MaskedText, embedder: Parameters
) -> float:
    """Recall@k, with k = `evaluation.recall_k`, over sentences with a known evidence passage.

    Embeds the whole knowledge corpus and searches it exactly.

    Args:
      config: the run's config.
      inputs: holds the knowledge corpus.
      text: masked sentences.
      embedder: params of the embedder.
    """
    numbers = np.arange(len(inputs.knowledge), dtype=np.int64)
    store = inputs.knowledge
    encoder = Encoder(config, store.vocabulary.size)
    vectors = encoder.embed_passages(encoder.place(embedder), store, numbers)
    retriever = HostRetriever(config, store.vocabulary.size)
    k = config.evaluation.recall_k
    found = retriever.hits(_LocalIndex(vectors, embedder), text.queries, k)
    known = text.evidence >= 0
    return float(recall_at(found[known], text.evidence[known], k).mean())
