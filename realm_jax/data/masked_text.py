"""Masked sentences of the pre-training corpus X: batch n is a function of (seed, n)."""

import copy
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64
from ml_collections import ConfigDict

from realm_jax.corpus.spans import SpanStore
from realm_jax.corpus.store import PassageStore
from realm_jax.data import masking, sampling
from realm_jax.data.rows import Rows, query_rows
from realm_jax.data.titled_queries import TitledQueries
from realm_jax.errors import InputError

_HELD_OUT_EVERY = 50
_TRIES = 100  # passages drawn for one batch row before an error is raised


# (passage, masked tokens, masked positions, original tokens)
_Example = tuple[int, np.ndarray, np.ndarray, np.ndarray]


class _Generators(NamedTuple):
    """Two random streams, so that all masking schemes use the same sentences and spans."""

    choose: np.random.Generator
    mask: np.random.Generator


class MaskedText(NamedTuple):
    """Masked queries and their targets.

    `embedded` has the queries as the embedder reads them, without prompt: as in `queries`, or after
    the title of their document. `source` is the passage of Z that holds the sentence, `evidence`
    the passage known to state the masked span; -1 if unknown.
    """

    queries: Rows
    embedded: Rows
    positions: Int32[Any, "B M"]
    targets: Int32[Any, "B M"]
    weights: Float32[Any, "B M"]
    source: Int64[Any, "B"]
    evidence: Int64[Any, "B"]


class MaskedTextSource:
    """Draws passages of X and masks one sentence of each; the sentence is the query x.

    Args:
      store: the pre-training corpus X.
      spans: its salient spans.
      config: the run's config.
      part: which passages with a salient span to use. `held_out`: those whose id is a multiple of
        50, or the first one if that would be none or all; `train`: the others; `all`: both. A
        random scheme with a rate uses all passages if none has a span.
      required: False: there may be no span, for a run that trains on no masked text.

    Raises:
      InputError: no passage of this part has a span.
    """

    def __init__(
        self,
        store: PassageStore,
        spans: SpanStore,
        config: ConfigDict,
        part: str = "all",
        required: bool = True,
    ):
        self.store, self.spans = store, spans
        self.lengths, self.masking, self.seed = config.lengths, config.masking, config.seed
        needs_spans = self.masking.scheme == "salient_span" or not self.masking.rate
        self._in_any_sentence = not (len(spans.rows) or needs_spans)
        rows = store.live_ids() if self._in_any_sentence else spans.rows
        held_out = _held_out(rows)
        parts = {"all": rows, "held_out": rows[held_out], "train": rows[~held_out]}
        self.rows = parts[part]
        self._titles = TitledQueries(store, config.stages.realm.title_share, config.seed)
        self._source = _ids_or_unknown(spans.source, len(store))
        self._evidence = _ids_or_unknown(spans.evidence, len(store))
        if required and len(rows) == 1 and not len(self.rows):
            raise InputError(
                "only one passage of the pre-training corpus has a salient span",
                where=spans.path,
                expected="at least two: one of them is held out",
                found=f"passage {rows[0]}",
                fix="add text, or hold out another corpus: --config.corpus.held_out=FOLDER",
            )
        if required and not len(self.rows):
            raise InputError(
                "no salient span in the pre-training corpus",
                where=spans.path,
                expected="spans in several passages, one of which is held out",
                fix="add text, mark spans with `realm tag annotate`, or mask without spans: "
                "--config.masking.scheme=random_span --config.masking.rate=0.15",
            )

    def __len__(self) -> int:
        return len(self.rows)

    def masked_by(self, masking: ConfigDict) -> "MaskedTextSource":
        """The same sentences with other masking settings."""
        other = copy.copy(self)
        other.masking = masking
        return other

    def batch(
        self, step: int, size: int, batch_rows: Int64[np.ndarray, "R"] | None = None
    ) -> MaskedText:
        """The masked queries of one training step; only those at `batch_rows` if it is given.

        Each batch row has its own random stream, so a host draws only its own rows.
        """
        batch_rows = sampling.rows_of_batch(size, batch_rows)
        drawn = self.rows[sampling.example_ids(self.seed, step, size, len(self.rows))[batch_rows]]
        rows = zip(drawn.tolist(), batch_rows.tolist(), strict=True)
        examples = [self._draw(r, self._generators("mask", step, row)) for r, row in rows]
        return self._collect(examples, self._titles.chosen(step, batch_rows))

    def first(self, count: int) -> MaskedText:
        """The first `count` usable passages with fixed masks, for evaluation."""
        rngs = self._generators("evaluation")
        found: list[_Example] = []
        for row in self.rows.tolist():
            if len(found) == count:
                break
            example = self._mask(row, rngs)
            found += [example] if example else []
        return self._collect(found, np.zeros(len(found), bool))

    def _generators(self, name: str, *numbers: int) -> _Generators:
        return _Generators(
            sampling.generator(self.seed, name, *numbers),
            sampling.generator(self.seed, f"{name}, hide", *numbers),
        )

    def _draw(self, row: int, rngs: _Generators) -> _Example:
        for _ in range(_TRIES):
            example = self._mask(row, rngs)
            if example is not None:
                return example
            row = int(self.rows[rngs.choose.integers(len(self.rows))])
        raise InputError(
            f"{_TRIES} consecutive passages have no salient span that fits a query",
            where=self.spans.path,
            expected=f"spans of at most {self.lengths.masks} word pieces in sentences of at most "
            f"{self.lengths.query - 2}",
            fix="raise config.lengths.query or mark more spans",
        )

    def _mask(self, row: int, rngs: _Generators) -> _Example | None:
        """One sentence of the passage with a span masked; None if no span fits."""
        bounds = self.store.sentences(row)
        spans = self._spans(row)
        sentence = np.searchsorted(bounds, spans[:, 0], side="right") - 1
        start, stop = bounds[sentence], bounds[sentence + 1]
        fits = (spans[:, 1] <= stop) & (spans[:, 1] - start <= self.lengths.query - 2)
        if not fits.any():
            return None
        chosen = rngs.choose.choice(np.flatnonzero(fits))
        start, stop = start[chosen], stop[chosen]
        stop = min(stop, start + self.lengths.query - 2)
        pieces = self.store.body_ids(row)[start:stop].copy()
        first, last = (spans[chosen] - start).tolist()
        positions, shown = masking.mask_tokens(
            self.masking.scheme,
            pieces,
            (first, last),
            self.masking.rate,
            self.store.vocabulary,
            rngs.mask,
        )
        targets = pieces[positions]
        pieces[positions] = shown
        return row, pieces, positions, targets

    def _spans(self, row: int) -> Int32[np.ndarray, "s 2"]:
        """Spans to mask, or where each sentence begins, from which a random scheme finds it."""
        if not self._in_any_sentence:
            return self.spans.of(row)
        starts = self.store.sentences(row)[:-1].astype(np.int32)
        return np.stack([starts, starts + 1], axis=1)

    def _collect(self, examples: list[_Example], titled: Bool[np.ndarray, "B"]) -> MaskedText:
        size, masks = len(examples), self.lengths.masks
        positions = np.zeros((size, masks), np.int32)
        targets = np.zeros((size, masks), np.int32)
        weights = np.zeros((size, masks), np.float32)
        for number, (_, _, masked, answer) in enumerate(examples):
            count = min(len(masked), masks)
            positions[number, :count] = masked[:count] + 1  # [CLS] comes first
            targets[number, :count] = answer[:count]
            weights[number, :count] = 1.0
        rows = np.array([example[0] for example in examples], np.int64)
        words, sentences = self.store.vocabulary, [example[1] for example in examples]
        with_titles = self._titles.before(sentences, rows, titled)
        return MaskedText(
            query_rows(sentences, self.lengths.query, words),
            query_rows(with_titles, self.lengths.query, words),
            positions,
            targets,
            weights,
            self._source[rows],
            self._evidence[rows],
        )


def _held_out(rows: Int64[np.ndarray, "N"]) -> Bool[np.ndarray, "N"]:
    """Which of the passages with a span are held out: at least one, and not all of several."""
    found = rows % _HELD_OUT_EVERY == 0
    return found if 0 < found.sum() < len(rows) else np.arange(len(rows)) == 0


def _ids_or_unknown(ids: np.ndarray | None, size: int) -> Int64[np.ndarray, "N"]:
    return np.full(size, -1, np.int64) if ids is None else ids
