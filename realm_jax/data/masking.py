"""Which pieces of a sentence are hidden, and what is shown there (REALM 3.4, the rows of Table 2).

| scheme | hidden together | shown |
|---|---|---|
| `salient_span` | all pieces of one salient span | `[MASK]` always |
| `random_token` | single pieces, each alike (BERT, section 3.1) | 80/10/10, see `_shown` |
| `random_span` | runs of whole words (SpanBERT, section 3.1) | the same, one choice a run |

Under either random scheme as many pieces are hidden as the salient span drawn for that sentence
has, so that schemes differ in where they hide and in nothing else; `masking.rate` above 0 hides
that share of the sentence instead.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from realm_jax.errors import ConfigError
from realm_jax.text.wordpiece import WordPieces

_SPAN_STOP, _SPAN_MOST = 0.2, 10  # SpanBERT: geometric lengths in words, those above 10 left out
_LENGTHS = np.arange(1, _SPAN_MOST + 1)
_LENGTH_SHARES = _SPAN_STOP * (1 - _SPAN_STOP) ** (_LENGTHS - 1)
_LENGTH_SHARES /= _LENGTH_SHARES.sum()  # mean 3.8
_AS_MASK, _AS_OTHER = 0.8, 0.1  # BERT: what hidden pieces are shown as; the rest stay

Groups = list[Int32[np.ndarray, "_"]]


class MaskedTokens(NamedTuple):
    """Places of the hidden pieces, ascending, and the pieces shown there."""

    positions: Int32[np.ndarray, "m"]
    shown: Int32[np.ndarray, "m"]


def mask_tokens(
    scheme: str,
    pieces: Int32[np.ndarray, "n"],
    span: tuple[int, int],
    rate: float,
    words: WordPieces,
    rng: np.random.Generator,
) -> MaskedTokens:
    """What is hidden of a sentence.

    Args:
      scheme: `config.masking.scheme`.
      pieces: of the sentence.
      span: (start, stop) of the salient span drawn for it.
      rate: share of the pieces that the random schemes hide; 0: as many as the span has.
      words: their vocabulary.
      rng: where chance comes from.

    Raises:
      ConfigError: no such scheme.
    """
    budget = max(1, round(rate * len(pieces))) if rate else span[1] - span[0]
    if scheme == "salient_span":
        positions = np.arange(*span, dtype=np.int32)
        return MaskedTokens(positions, np.full(len(positions), words.mask, np.int32))
    if scheme == "random_token":
        groups = random_tokens(len(pieces), budget, rng)
    elif scheme == "random_span":
        groups = random_spans(~words.continues[pieces], budget, rng)
    else:
        raise ConfigError("unknown masking scheme", where="config.masking.scheme", found=scheme)
    return _shown(groups, pieces, words, rng)


def random_tokens(size: int, budget: int, rng: np.random.Generator) -> Groups:
    """`budget` of `size` pieces, each alike and by itself."""
    return list(rng.choice(size, budget, replace=False).astype(np.int32)[:, None])


def random_spans(begins: Bool[np.ndarray, "n"], budget: int, rng: np.random.Generator) -> Groups:
    """Runs of whole words at random until `budget` pieces are hidden; the last run is cut there.

    `begins` is true where a word begins. A run begins at a word not yet hidden, each alike.
    """
    starts = np.union1d(0, np.flatnonzero(begins))
    ends = np.append(starts[1:], len(begins))
    hidden = np.zeros(len(begins), bool)
    groups: Groups = []
    while budget > 0:
        free = np.flatnonzero(~hidden[starts])
        first = int(rng.choice(free))
        last = min(first + int(rng.choice(_LENGTHS, p=_LENGTH_SHARES)), len(starts)) - 1
        run = np.arange(starts[first], ends[last], dtype=np.int32)
        run = run[~hidden[run]][:budget]
        hidden[run] = True
        budget -= len(run)
        groups.append(run)
    return groups


def _shown(
    groups: Groups, pieces: Int32[np.ndarray, "n"], words: WordPieces, rng: np.random.Generator
) -> MaskedTokens:
    """BERT's 80/10/10: `[MASK]`, any piece, or what is there; one choice for each group."""
    shown = pieces.copy()
    for group, chance in zip(groups, rng.random(len(groups)), strict=True):
        if chance < _AS_MASK:
            shown[group] = words.mask
        elif chance < _AS_MASK + _AS_OTHER:
            shown[group] = rng.choice(words.ordinary, len(group))
    positions = np.sort(np.concatenate(groups))
    return MaskedTokens(positions, shown[positions])
