"""Random tokens with the lengths of English Wikipedia: configs, passages and masked sentences."""

from types import SimpleNamespace

import numpy as np
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.rows import query_rows

SIZES = {  # layers, hidden, heads, queries per step
    "tiny": (1, 64, 2, 2),  # only to test that a benchmark runs
    "small": (4, 256, 4, 4),
    "base": (12, 768, 12, 1),
}
# Quantiles 0 %, 5 %, ..., 100 % of lengths in tokens: of 105,065 passages of at most 288 tokens
# from 7,570 long articles (title and body), and of 2,000 masked sentences from these articles.
QUANTILES = {
    "body": "2 186 230 241 248 252 256 259 261 263 266 267 269 271 273 274 276 278 279 281 285",
    "title": "1 1 1 1 2 2 2 2 2 2 3 3 3 3 3 4 4 4 5 6 22",
    "query": "7 18 21 23 26 28 30 31 33 35 37 39 42 45 48 51 56 61 69 84 96",
    "masks": "1 1 1 1 1 1 1 1 1 2 2 2 2 2 3 3 3 3 4 5 9",
}
PASSAGES = 5000
PIECES = 30_522  # vocabulary size
VOCABULARY = SimpleNamespace(
    pad=0,
    cls=101,
    sep=102,
    mask=103,
    size=PIECES,
    pieces=lambda prompts: [(np.empty(0, np.int32), None) for _ in prompts],  # no prompts
)


def sized_config(size: str) -> ConfigDict:
    """Returns a config with the paper's lengths and a model of one of `SIZES`.

    Dropout is off, so that the losses of different variants can be compared.
    """
    layers, hidden, heads, queries = SIZES[size]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden, dropout=0.0)
    config.model.scan = False  # faster on a CPU; the compared libraries unroll their layers too
    config.stages.realm.update(steps=1000, batch=queries)
    config.stages.realm.marginal = "released"
    return config


def random_lengths(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Draws lengths from the distribution given by `QUANTILES[kind]`."""
    quantiles = np.array(QUANTILES[kind].split(), float)
    shares = np.linspace(0, 1, len(quantiles))
    return np.interp(rng.random(count), shares, quantiles).round().astype(np.int64)


class RandomStore:
    """The part of `PassageStore` that a training stage uses, filled with random tokens."""

    vocabulary = VOCABULARY
    corpus_hash = "random"

    def __init__(self):
        rng = np.random.default_rng(0)
        titles, bodies = (random_lengths(kind, rng, PASSAGES) for kind in ("title", "body"))
        self._ends = np.cumsum(np.stack([titles, bodies], 1)).reshape(-1, 2)
        self._sizes = np.stack([titles, bodies], 1)
        self.flat = rng.integers(1000, PIECES, int(self._ends[-1, 1])).astype(np.uint16)

    def __len__(self) -> int:
        return PASSAGES

    def live_ids(self) -> np.ndarray:
        """Returns the ids of all passages."""
        return np.arange(PASSAGES)

    def is_live(self, ids: np.ndarray) -> np.ndarray:
        """Returns whether passages with these ids exist."""
        return (ids >= 0) & (ids < PASSAGES)

    def title_bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns start and end positions of titles in `flat`."""
        return self._ends[rows, 0] - self._sizes[rows, 0], self._ends[rows, 0]

    def body_bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns start and end positions of bodies in `flat`."""
        return self._ends[rows, 0], self._ends[rows, 1]


class RandomText:
    """Masked sentences of random tokens, with the interface of `MaskedTextSource`."""

    def __init__(self, config: ConfigDict):
        self._lengths = config.lengths

    def batch(self, step: int, size: int, batch_rows: np.ndarray | None = None) -> MaskedText:
        """As `MaskedTextSource.batch`, for a single process."""
        assert batch_rows is None or len(batch_rows) == size
        rng, slots = np.random.default_rng([1, step]), self._lengths.masks
        lengths = random_lengths("query", rng, size)
        masks = np.minimum(random_lengths("masks", rng, size), lengths - 2)
        rows = query_rows(
            [rng.integers(1000, PIECES, length - 2) for length in lengths],
            self._lengths.query,
            VOCABULARY,
        )
        weights = (np.arange(slots) < masks[:, None]).astype(np.float32)
        positions = ((1 + np.arange(slots)) * weights).astype(np.int32)
        targets = (rng.integers(1000, PIECES, weights.shape) * weights).astype(np.int32)
        filled = np.where(weights > 0, VOCABULARY.mask, VOCABULARY.cls)
        np.put_along_axis(rows.ids, positions, filled, 1)
        no_passage = np.full(size, -1)
        return MaskedText(rows, rows, positions, targets, weights, no_passage, no_passage)
