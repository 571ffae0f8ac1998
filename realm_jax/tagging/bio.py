"""BIO tags: conversion between tags and entities, and Viterbi decoding."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

OUTSIDE = "O"
_TAG = re.compile(r"O|([BI])(?:-(.*))?")
_FORBIDDEN = np.float32(-1e9)
# In CoNLL-2003's training file, 70 of 23,499 entities follow an entity of the same type directly:
# log(23499 / 70). Without this penalty a weak model splits a name before the surname.
ADJACENT_PENALTY = 5.8  # nats; cost of a B directly after an entity of the same type


class Entity(NamedTuple):
    """An entity of this type: words `start` to `stop` (exclusive) of a sentence."""

    type: str
    start: int
    stop: int


def split_tag(tag: str) -> tuple[str, str] | None:
    """Splits "B-LOC" into ("B", "LOC") and "O" into ("O", ""); None if the tag is invalid."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return None
    return match[1] or OUTSIDE, match[2] or ""


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence by the rules of conlleval.

    An I that does not follow an entity of its type begins a new entity. For example
    `O I-LOC I-PER B-PER O` gives LOC (1, 2), PER (2, 3), PER (3, 4).

    Raises:
      ValueError: a tag is invalid.
    """
    found: list[Entity] = []
    before, before_type, start = OUTSIDE, "", 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        parts = split_tag(tag)
        if parts is None:
            raise ValueError(f"expected O, B-TYPE or I-TYPE, found {tag!r}")
        kind, type_ = parts
        continues = kind == "I" and before != OUTSIDE and type_ == before_type
        if before != OUTSIDE and not continues:
            found.append(Entity(before_type, start, position))
        if kind != OUTSIDE and not continues:
            start = position
        before, before_type = kind, type_
    return found


def tags_of(found: Sequence[Entity], length: int) -> list[str]:
    """BIO2 tags of a sentence with these entities; every entity begins with B."""
    tags = [OUTSIDE] * length
    for entity in found:
        tags[entity.start : entity.stop] = [f"I-{entity.type}"] * (entity.stop - entity.start)
        tags[entity.start] = f"B-{entity.type}"
    return tags


def labels(types: str) -> list[str]:
    """The classes of a tagger in order; for "LOC PER": `O B-LOC I-LOC B-PER I-PER`."""
    return [OUTSIDE, *(f"{kind}-{type_}" for type_ in types.split() for kind in "BI")]


def decode(
    scores: Float32[np.ndarray, "B T C"], begins: Bool[np.ndarray, "B T"]
) -> Int64[np.ndarray, "B T"]:
    """Viterbi decoding: the best label sequences in which every I follows a B or I of its type.

    Axes: B documents, T words, C labels.

    Args:
      scores: log probabilities of the labels of each word, in the order of `labels`.
      begins: True on the first word of each sentence. There I is forbidden and B has no penalty.
        Padding after the last word does not change the result.

    Returns:
      Label numbers.
    """
    size, length, count = scores.shape
    if length == 0:
        return np.zeros((size, 0), np.int64)
    inside = np.arange(2, count, 2)
    across = np.zeros((count, count), np.float32)  # [from, to], between sentences
    across[:, inside] = _FORBIDDEN
    across[inside, inside] = 0
    across[inside - 1, inside] = 0
    within = across.copy()  # within a sentence
    within[inside - 1, inside - 1] = within[inside, inside - 1] = -ADJACENT_PENALTY
    scores = scores.copy()
    scores[:, :, inside] += np.where(begins, _FORBIDDEN, 0)[:, :, None].astype(np.float32)
    scores[:, 0, inside] = _FORBIDDEN
    back_pointers = np.zeros((size, length, count), np.int64)
    best = scores[:, 0]
    for word in range(1, length):
        transitions = np.where(begins[:, word, None, None], across, within)
        paths = best[:, :, None] + transitions
        back_pointers[:, word] = paths.argmax(1)
        best = paths.max(1) + scores[:, word]
    chosen = np.empty((size, length), np.int64)
    chosen[:, -1] = best.argmax(1)
    for word in range(length - 1, 0, -1):
        chosen[:, word - 1] = back_pointers[np.arange(size), word, chosen[:, word]]
    return chosen
