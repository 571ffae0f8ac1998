"""Batches of REALM pre-training: masked queries and their candidates, packed."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.packing import (
    SAMPLE_QUERIES,
    Packed,
    Widths,
    bucket_for,
    grouped,
    lengths_of,
    make_buckets,
    pack,
    sample_groups,
)
from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows
from realm_jax.data.sampling import generator


class PretrainingBatch(NamedTuple):
    """G groups of b masked queries with K candidates each; candidate 0 is the null passage.

    The masked tokens of a group form a dense list of at most U entries.
    """

    embedded: Packed  # rows of the embedder: b queries, the null passage, b (K - 1) candidates
    read: Packed  # rows of the reader: b K joint rows, ordered by query, then candidate
    query: Int32[Any, "G U"]  # query of each masked token, as a number within the group
    position: Int32[Any, "G U"]  # position of each masked token in its query row
    target: Int32[Any, "G U"]  # original token
    listed: Int32[Any, "G b M"]  # index into the dense list, by query and mask number
    weights: Float32[Any, "G b M"]  # 1 on real masked positions, 0 on padding
    valid: Bool[Any, "G b K"]  # False on candidates to exclude


class Buckets(NamedTuple):
    """Buckets of the three sizes that vary between batches; all three have the same number."""

    embedded: tuple[Widths, ...]
    read: tuple[Widths, ...]
    masked: tuple[Widths, ...]  # one number per bucket: U


class PretrainingRows:
    """Builds batches with b queries per group.

    Args:
      config: the run's config.
      store: the knowledge corpus Z.
      size: b.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, size: int):
        self._store, self._size, self._lengths = store, size, config.lengths
        self._candidates = config.retrieval.candidates
        self._embedder = EmbedderRows(config, store.vocabulary)

    def batch(
        self,
        text: MaskedText,
        chosen: Int64[np.ndarray, "B K"],
        valid: Bool[np.ndarray, "B K"],
        buckets: Buckets,
        agree: Callable[[int], int] = lambda bucket: bucket,
    ) -> PretrainingBatch:
        """The batch of these queries with these candidates.

        Args:
          text: masked queries.
          chosen: passage ids of the candidates, the null passage first.
          valid: False on candidates to exclude.
          buckets: allowed shapes, from `usual` or `widest`.
          agree: maps the bucket number of this host to the one that all hosts use.
        """
        groups = len(valid) // self._size
        embedded, read = self._rows(text, chosen, groups)
        masked = text.weights.reshape(groups, -1).sum(1, keepdims=True).astype(np.int64)
        needed = (lengths_of(embedded), lengths_of(read), masked)
        found = (bucket_for(need, widths) for need, widths in zip(needed, buckets, strict=True))
        bucket = agree(max(found))
        return PretrainingBatch(
            pack(embedded, buckets.embedded[bucket]),
            pack(read, buckets.read[bucket]),
            *_listed(text, groups, buckets.masked[bucket][0]),
            text.weights.reshape(groups, self._size, -1),
            valid.reshape(groups, self._size, -1),
        )

    @cached_property
    def widest(self) -> Buckets:
        """A single bucket that fits every batch."""
        return Buckets(*(make_buckets(most) for most in self._most()))

    def usual(self, source: MaskedTextSource) -> Buckets:
        """Buckets sized for queries of this source and random passages of the corpus."""
        text = source.batch(0, SAMPLE_QUERIES)
        shape = (SAMPLE_QUERIES, self._candidates - 1)
        live = self._store.live_ids()
        chosen = live[generator(0, "beside").integers(len(live), size=shape)]
        chosen = np.pad(chosen, ((0, 0), (1, 0)), constant_values=NULL_PASSAGE)
        embedded, read = self._rows(text, chosen, SAMPLE_QUERIES)
        null = np.full((1, 1), self._embedder.null_length)
        without_null = lengths_of([embedded[0], embedded[2]])
        seen = [sample_groups(need, self._size) for need in (without_null, lengths_of(read))]
        seen[0] = np.concatenate([seen[0], np.broadcast_to(null, (len(seen[0]), 1))], axis=1)
        masked = sample_groups(text.weights.sum(1, keepdims=True).astype(np.int64), self._size)
        seen.append(masked.sum(1, keepdims=True))
        return Buckets(*(make_buckets(m, s) for m, s in zip(self._most(), seen, strict=True)))

    def _most(self) -> tuple[list[int], list[int], list[int]]:
        """Maximum row lengths of the embedder and of the reader, and the maximum U."""
        queries, passages = self._size, self._size * (self._candidates - 1)
        query, passage, joint = self._lengths.query, self._lengths.passage, self._lengths.joint
        return (
            [self._embedder.query] * queries + [self._embedder.null_length] + [passage] * passages,
            [query + 1] * queries + [joint] * passages,
            [queries * self._lengths.masks],
        )

    def _rows(
        self, text: MaskedText, chosen: Int64[np.ndarray, "B K"], groups: int
    ) -> tuple[list[Rows], list[Rows]]:
        """Input rows of the embedder and of the reader, grouped."""
        store, lengths = self._store, self._lengths
        of_null = np.full((groups, 1), NULL_PASSAGE)
        null = self._embedder.passages(store, of_null, self._embedder.null_length)
        passages = self._embedder.passages(store, chosen[:, 1:], lengths.passage)
        joint = joint_rows(text.queries, store, chosen, lengths.joint)
        queries = self._embedder.queries(text.embedded)
        embedded = [grouped(queries, groups), null, grouped(passages, groups)]
        return embedded, [grouped(joint, groups)]


def _listed(
    text: MaskedText, groups: int, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields `query`, `position`, `target` and `listed` of a batch."""
    real = text.weights.reshape(groups, -1, text.weights.shape[-1]) > 0
    group, query, mask = np.nonzero(real)
    index = np.arange(len(group)) - np.searchsorted(group, group)
    found = np.zeros((3, groups, most), np.int32)
    found[0, group, index] = query
    for kind, part in ((1, text.positions), (2, text.targets)):
        found[kind, group, index] = part.reshape(real.shape)[group, query, mask]
    listed = np.zeros(real.shape, np.int32)
    listed[group, query, mask] = index
    return found[0], found[1], found[2], listed
