"""BIO tags: labels to numbers, tags to entities and back, and the best sequence that follows."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

OUTSIDE = "O"
_TAG = re.compile(r"O|([BI])(?:-(.*))?")
_BARRED = np.float32(-1e9)
# Two entities of one type stand side by side 70 times among the 23,499 of CoNLL-2003's training
# file: log(23499 / 70). A weak model would otherwise begin a surname anew.
SIDE_BY_SIDE = 5.8  # nats that a B costs right after an entity of its type


class Entity(NamedTuple):
    """Words `start` to `stop` (not included) of a sentence are one entity of this type."""

    type: str
    start: int
    stop: int


def split_tag(tag: str) -> tuple[str, str] | None:
    """("B", "LOC") of "B-LOC", ("O", "") of "O"; None if it is no tag. Types may hold hyphens."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return None
    return match[1] or OUTSIDE, match[2] or ""


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence by conlleval's rules: an I that follows no entity of its type
    (after O, after another type, at the beginning) begins one.

    `O I-LOC I-PER B-PER O` holds LOC (1, 2), PER (2, 3), PER (3, 4).

    Raises:
      ValueError: something that is no tag.
    """
    found: list[Entity] = []
    before, before_type, start = OUTSIDE, "", 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        parts = split_tag(tag)
        if parts is None:
            raise ValueError(f"expected O, B-TYPE or I-TYPE, found {tag!r}")
        kind, type_ = parts
        goes_on = kind == "I" and before != OUTSIDE and type_ == before_type
        if before != OUTSIDE and not goes_on:
            found.append(Entity(before_type, start, place))
        if kind != OUTSIDE and not goes_on:
            start = place
        before, before_type = kind, type_
    return found


def tags_of(found: Sequence[Entity], length: int) -> list[str]:
    """BIO2 tags of a sentence with these entities: each begins with B."""
    tags = [OUTSIDE] * length
    for entity in found:
        tags[entity.start : entity.stop] = [f"I-{entity.type}"] * (entity.stop - entity.start)
        tags[entity.start] = f"B-{entity.type}"
    return tags


def labels(types: str) -> list[str]:
    """The classes of a tagger in order: of "LOC PER", `O B-LOC I-LOC B-PER I-PER`."""
    return [OUTSIDE, *(f"{kind}-{type_}" for type_ in types.split() for kind in "BI")]


def decode(
    scores: Float32[np.ndarray, "B T C"], begins: Bool[np.ndarray, "B T"]
) -> Int64[np.ndarray, "B T"]:
    """The best-scored label sequences in which every I follows a B or I of its type (Viterbi).

    Args:
      scores: log probabilities of every word and label, in the order of `labels`.
      begins: true on the first word of each sentence, where no I may stand and a B costs nothing;
        padding after the last word harms nothing.
    """
    size, length, count = scores.shape
    if length == 0:
        return np.zeros((size, 0), np.int64)
    inside = np.arange(2, count, 2)
    barred = np.zeros((count, count), np.float32)  # [from, to]
    barred[:, inside] = _BARRED
    barred[inside, inside] = 0
    barred[inside - 1, inside] = 0
    near = barred.copy()  # within a sentence
    near[inside - 1, inside - 1] = near[inside, inside - 1] = -SIDE_BY_SIDE
    scores = scores.copy()
    scores[:, :, inside] += np.where(begins, _BARRED, 0)[:, :, None].astype(np.float32)
    scores[:, 0, inside] = _BARRED
    came_from = np.zeros((size, length, count), np.int64)
    best = scores[:, 0]
    for place in range(1, length):
        steps = np.where(begins[:, place, None, None], barred, near)
        paths = best[:, :, None] + steps
        came_from[:, place] = paths.argmax(1)
        best = paths.max(1) + scores[:, place]
    chosen = np.empty((size, length), np.int64)
    chosen[:, -1] = best.argmax(1)
    for place in range(length - 1, 0, -1):
        chosen[:, place - 1] = came_from[np.arange(size), place, chosen[:, place]]
    return chosen
