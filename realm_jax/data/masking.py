"""Masking schemes (REALM section 3.4; the rows of Table 2).

| scheme | masked together | input at masked positions |
|---|---|---|
| `salient_span` | all tokens of one salient span | always `[MASK]` |
| `random_token` | single tokens, uniformly (BERT, section 3.1) | 80/10/10, see `_replace` |
| `random_span` | runs of whole words (SpanBERT, section 3.1) | 80/10/10, one draw per run |

The random schemes mask as many tokens as the salient span drawn for the sentence has, so schemes
differ only in which tokens they mask. If `masking.rate` is above 0, they mask that share of the
sentence instead.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from realm_jax.errors import ConfigError
from realm_jax.text.wordpiece import WordPieces

_SPAN_STOP, _SPAN_MOST = 0.2, 10  # SpanBERT: geometric lengths in words, at most 10
_LENGTHS = np.arange(1, _SPAN_MOST + 1)
_LENGTH_SHARES = _SPAN_STOP * (1 - _SPAN_STOP) ** (_LENGTHS - 1)
_LENGTH_SHARES /= _LENGTH_SHARES.sum()  # mean 3.8
_AS_MASK, _AS_OTHER = 0.8, 0.1  # BERT: shares replaced by [MASK] and by a random token

Groups = list[Int32[np.ndarray, "_"]]


class MaskedTokens(NamedTuple):
    """Masked positions, ascending, and the input tokens at these positions."""

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
    """Chooses the masked positions of a sentence and their input tokens.

    Args:
      scheme: `config.masking.scheme`.
      pieces: token ids of the sentence.
      span: (start, stop) of the salient span drawn for it.
      rate: share of tokens that the random schemes mask; 0 masks as many as the span has.
      words: the vocabulary.
      rng: random generator.

    Raises:
      ConfigError: the scheme does not exist.
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
    return _replace(groups, pieces, words, rng)


def random_tokens(size: int, budget: int, rng: np.random.Generator) -> Groups:
    """`budget` of `size` positions, uniformly without replacement; each is its own group."""
    return list(rng.choice(size, budget, replace=False).astype(np.int32)[:, None])


def random_spans(begins: Bool[np.ndarray, "n"], budget: int, rng: np.random.Generator) -> Groups:
    """Random runs of whole words until `budget` tokens are masked; the last run is truncated.

    `begins` is True where a word begins. A run starts at an unmasked word, drawn uniformly.
    """
    starts = np.union1d(0, np.flatnonzero(begins))
    ends = np.append(starts[1:], len(begins))
    masked = np.zeros(len(begins), bool)
    groups: Groups = []
    while budget > 0:
        free = np.flatnonzero(~masked[starts])
        first = int(rng.choice(free))
        last = min(first + int(rng.choice(_LENGTHS, p=_LENGTH_SHARES)), len(starts)) - 1
        run = np.arange(starts[first], ends[last], dtype=np.int32)
        run = run[~masked[run]][:budget]
        masked[run] = True
        budget -= len(run)
        groups.append(run)
    return groups


def _replace(
    groups: Groups, pieces: Int32[np.ndarray, "n"], words: WordPieces, rng: np.random.Generator
) -> MaskedTokens:
    """BERT's 80/10/10: `[MASK]`, a random token, or the original; one draw per group."""
    shown = pieces.copy()
    for group, chance in zip(groups, rng.random(len(groups)), strict=True):
        if chance < _AS_MASK:
            shown[group] = words.mask
        elif chance < _AS_MASK + _AS_OTHER:
            shown[group] = rng.choice(words.ordinary, len(group))
    positions = np.sort(np.concatenate(groups))
    return MaskedTokens(positions, shown[positions])
