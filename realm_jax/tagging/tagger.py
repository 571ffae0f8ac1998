"""Inference of the tagger: documents -> BIO tags of their words."""

import functools
import json
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32
from ml_collections import ConfigDict

from realm_jax import config as config_lib
from realm_jax.data.padding import padded_indices
from realm_jax.models.modules import Modules, Parameters
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import local_mesh, replicated
from realm_jax.storage.layout import VOCABULARY, RunDir
from realm_jax.tagging.batches import Window, rows, windows
from realm_jax.tagging.bio import decode, labels
from realm_jax.tagging.published_tagger import PublishedTagger, read_tagger
from realm_jax.tagging.words import Sentence
from realm_jax.text.wordpiece import WordPieces

# Row widths as shares of stages.tagger.row_length; each width is compiled once.
_WIDTHS = (1.0, 0.75, 0.5, 0.25)
_DECODE_BATCH = 64  # documents of similar length per Viterbi call


class Tagger:
    """A trained tagger on all devices of this process; `types` lists its entity types.

    Args:
      config: config of the run that trained it.
      pieces: its vocabulary.
      parameters: of the network `tagger`.
    """

    def __init__(self, config: ConfigDict, pieces: WordPieces, parameters: Parameters):
        self._mesh, self._pieces = local_mesh(), pieces
        self._parameters = jax.device_put(parameters, replicated(self._mesh))
        self._length = config.stages.tagger.row_length
        self._widths = sorted({max(8, int(share * self._length)) for share in _WIDTHS})
        self._budget = config.builder.batch_pieces
        self.types: str = config.model.entities
        self._labels = labels(self.types)
        self._score = _score_function(config.model.to_json(), pieces.size)

    @classmethod
    def open(cls, workdir: str) -> tuple["Tagger", PublishedTagger]:
        """Loads the newest tagger of a run, with its published folder.

        Raises:
          InputError: the run has not published a tagger.
          DamageError: a file is damaged; the message names it.
        """
        found = read_tagger(RunDir(workdir))
        config = config_lib.from_json(found.config_json, where=found.folder)
        return cls(config, WordPieces.load(found.folder / VOCABULARY), found.parameters), found

    def tags(self, documents: Sequence[Sequence[Sentence]]) -> list[list[list[str]]]:
        """One valid BIO tag for each word of each sentence of each document."""
        sizes = [sum(len(s.words) for s in document) for document in documents]
        scores = self._scores(documents, sizes)
        found: list[list[list[str]]] = [[] for _ in documents]
        by_size = np.argsort(sizes, kind="stable")
        for start in range(0, len(by_size), _DECODE_BATCH):
            members = by_size[start : start + _DECODE_BATCH].tolist()
            best = _decoded([documents[i] for i in members], [scores[i] for i in members])
            for number, chosen in zip(members, best, strict=True):
                tags = iter(chosen[: sizes[number]].tolist())
                found[number] = [
                    [self._labels[next(tags)] for _ in sentence.words]
                    for sentence in documents[number]
                ]
        return found

    def _scores(
        self, documents: Sequence[Sequence[Sentence]], sizes: list[int]
    ) -> list[Float32[np.ndarray, "_ C"]]:
        """Label log probabilities of the words of each document; a word without tokens is O."""
        outside = np.where(np.arange(len(self._labels)) == 0, 0.0, -100.0).astype(np.float32)
        scores = [np.tile(outside, (size, 1)) for size in sizes]
        sharded = NamedSharding(self._mesh, PartitionSpec(self._mesh.axis_names))
        found = windows(documents, self._pieces, self._length)
        width = np.searchsorted(self._widths, [len(window.ids) + 2 for window in found])
        pending: list[tuple[list[Window], Float[Array, "R L C"]]] = []
        for bucket in range(len(self._widths)):
            members = [found[i] for i in np.flatnonzero(width == bucket)]
            size = max(1, self._budget // self._widths[bucket]) * self._mesh.size
            for start in range(0, len(members), size):
                chosen = members[start : start + size]
                padded = [chosen[i] for i in padded_indices(len(chosen), size)]
                batch = jax.device_put(rows(padded, self._widths[bucket], self._pieces), sharded)
                pending.append((chosen, self._score(self._parameters, batch)))
                if len(pending) > 1:  # the host builds the next batch while the device computes
                    _copy_scores(scores, *pending.pop(0))
        for chosen, computed in pending:
            _copy_scores(scores, chosen, computed)
        return scores


def _copy_scores(
    scores: list[Float32[np.ndarray, "_ C"]],
    chosen: list[Window],
    computed: Float[Array, "R L C"],
) -> None:
    """Copies the scores of the first token of each word to the word's document."""
    values = np.asarray(computed)
    for row, window in enumerate(chosen):
        firsts = np.flatnonzero(window.first)
        scores[window.document][window.words[firsts]] = values[row, firsts + 1]


def _decoded(
    documents: Sequence[Sequence[Sentence]], scores: Sequence[Float32[np.ndarray, "_ C"]]
) -> np.ndarray:
    """Label numbers [B, T]; values after the last word of a document are arbitrary."""
    longest = max(map(len, scores))
    padded = np.zeros((len(scores), longest, scores[0].shape[1]), np.float32)
    begins = np.zeros((len(scores), longest), bool)
    for row, (document, log_p) in enumerate(zip(documents, scores, strict=True)):
        padded[row, : len(log_p)] = log_p
        counts = np.array([0, *(len(s.words) for s in document)])
        starts = counts.cumsum()
        begins[row, starts[starts < len(log_p)]] = True
    return decode(padded, begins)


@functools.lru_cache(maxsize=2)
def _score_function(model_json: str, vocabulary: int) -> Callable[..., Float[Array, "R L C"]]:
    """A jitted function to label log probabilities, cached so each width compiles once."""
    modules = Modules(ConfigDict(json.loads(model_json)), vocabulary, ("tagger",))
    return Program(
        "tagger/label",
        lambda params, batch: jax.nn.log_softmax(
            modules.bind({"tagger": params}).tagger.label_logits(*batch)
        ),
    )
