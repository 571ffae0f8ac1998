"""Masked queries and their candidates as the batch of a step of REALM."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.store import PassageStore
from realm_jax.data.masked_text import MaskedText, MaskedTextSource
from realm_jax.data.packing import (
    SAMPLE_QUERIES,
    Packed,
    Widths,
    sample_groups,
    grouped,
    make_buckets,
    lengths_of,
    pack,
    bucket_for,
)
from realm_jax.data.rows import NULL_LENGTH, NULL_PASSAGE, Rows, joint_rows, passage_rows
from realm_jax.data.sampling import generator


class PretrainingBatch(NamedTuple):
    """Masked queries with K candidates each, in G groups of b; candidate 0 is the null passage.

    The masked pieces of a group are listed without gaps, U of them at most.
    """

    embedded: Packed  # b queries, the null passage, b (K - 1) candidates
    read: Packed  # b K joint rows, candidate after candidate
    query: Int32[Any, "G U"]  # of each masked piece: its query in the group
    position: Int32[Any, "G U"]  # in the query
    target: Int32[Any, "G U"]
    listed: Int32[Any, "G b M"]  # where the masked pieces of a query stand in the list
    weights: Float32[Any, "G b M"]  # 1 on those there are
    valid: Bool[Any, "G b K"]


class Buckets(NamedTuple):
    """Ladders of the three things that differ in size from batch to batch; they are as high."""

    embedded: tuple[Widths, ...]
    read: tuple[Widths, ...]
    masked: tuple[Widths, ...]  # of one number each: U


class PretrainingRows:
    """Makes batches of groups of b queries.

    Args:
      config: of the run.
      store: the knowledge corpus Z.
      size: b.
    """

    def __init__(self, config: ConfigDict, store: PassageStore, size: int):
        self._store, self._size, self._lengths = store, size, config.lengths
        self._candidates = config.retrieval.candidates

    def batch(
        self,
        text: MaskedText,
        chosen: Int64[np.ndarray, "B K"],
        valid: Bool[np.ndarray, "B K"],
        buckets: Buckets,
        agree: Callable[[int], int] = lambda bucket: bucket,
    ) -> PretrainingBatch:
        """Queries with these passages.

        Args:
          text: masked queries.
          chosen: passage ids, the null passage first.
          valid: which of them count.
          buckets: of `buckets`.
          agree: from the bucket that holds these rows to the one that all hosts take.
        """
        groups = len(valid) // self._size
        embedded, read = self._rows(text, chosen, groups)
        masked = text.weights.reshape(groups, -1).sum(1, keepdims=True).astype(np.int64)
        needed = (lengths_of(embedded), lengths_of(read), masked)
        bucket = agree(max(bucket_for(need, own) for need, own in zip(needed, buckets, strict=True)))
        return PretrainingBatch(
            pack(embedded, buckets.embedded[bucket]),
            pack(read, buckets.read[bucket]),
            *_listed(text, groups, buckets.masked[bucket][0]),
            text.weights.reshape(groups, self._size, -1),
            valid.reshape(groups, self._size, -1),
        )

    @cached_property
    def widest(self) -> Buckets:
        """One bucket, which holds anything."""
        return Buckets(*(make_buckets(most) for most in self._most()))

    def usual(self, source: MaskedTextSource) -> Buckets:
        """Buckets for queries of this source beside passages as they come in the corpus."""
        text = source.batch(0, SAMPLE_QUERIES)
        shape = (SAMPLE_QUERIES, self._candidates - 1)
        chosen = generator(0, "beside").integers(len(self._store), size=shape)
        chosen = np.pad(chosen, ((0, 0), (1, 0)), constant_values=NULL_PASSAGE)
        embedded, read = self._rows(text, chosen, SAMPLE_QUERIES)
        null = np.full((1, 1), NULL_LENGTH)
        alone = lengths_of([embedded[0], embedded[2]])
        seen = [sample_groups(need, self._size) for need in (alone, lengths_of(read))]
        seen[0] = np.concatenate([seen[0], np.broadcast_to(null, (len(seen[0]), 1))], axis=1)
        masked = sample_groups(text.weights.sum(1, keepdims=True).astype(np.int64), self._size)
        seen.append(masked.sum(1, keepdims=True))
        return Buckets(*(make_buckets(m, s) for m, s in zip(self._most(), seen, strict=True)))

    def _most(self) -> tuple[list[int], list[int], list[int]]:
        own, others = self._size, self._size * (self._candidates - 1)
        query, passage, joint = self._lengths.query, self._lengths.passage, self._lengths.joint
        return (
            [query] * own + [NULL_LENGTH] + [passage] * others,
            [query + 1] * own + [joint] * others,
            [own * self._lengths.masks],
        )

    def _rows(
        self, text: MaskedText, chosen: Int64[np.ndarray, "B K"], groups: int
    ) -> tuple[list[Rows], list[Rows]]:
        """What the embedder and what the reader reads."""
        store, lengths = self._store, self._lengths
        null = passage_rows(store, np.full((groups, 1), NULL_PASSAGE), NULL_LENGTH)
        passages = passage_rows(store, chosen[:, 1:], lengths.passage)
        joint = joint_rows(text.queries, store, chosen, lengths.joint)
        embedded = [grouped(text.queries, groups), null, grouped(passages, groups)]
        return embedded, [grouped(joint, groups)]


def _listed(
    text: MaskedText, groups: int, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`query`, `position`, `target` and `listed` of a batch."""
    real = text.weights.reshape(groups, -1, text.weights.shape[-1]) > 0
    group, query, mask = np.nonzero(real)
    place = np.arange(len(group)) - np.searchsorted(group, group)
    found = np.zeros((3, groups, most), np.int32)
    found[0, group, place] = query
    for kind, part in ((1, text.positions), (2, text.targets)):
        found[kind, group, place] = part.reshape(real.shape)[group, query, mask]
    listed = np.zeros(real.shape, np.int32)
    listed[group, query, mask] = place
    return found[0], found[1], found[2], listed
