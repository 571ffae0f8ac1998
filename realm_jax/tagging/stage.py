"""The training stage of the tagger."""

from types import SimpleNamespace

import jax
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from realm_jax import losses
from realm_jax.models.modules import Modules, Parameters
from realm_jax.tagging.batches import TaggerBatch, TaggerSource, sentences_of
from realm_jax.tagging.bio import labels
from realm_jax.tagging.conll import TaggedSentence
from realm_jax.tagging.conlleval import Scores, score
from realm_jax.tagging.tagger import Tagger
from realm_jax.text.wordpiece import WordPieces
from realm_jax.trainer.stage import BatchRows, Evaluator, IndexFreeStage, Loss


class TaggerStage(IndexFreeStage):
    """Trains the tagger by cross-entropy of each word's label at its first token.

    Args:
      config: the run's config.
      pieces: the vocabulary.
      train_documents: tagged sentences of each training document.
      held_out: the same for evaluation; may be empty.
    """

    name, prefetchable = "tagger", True

    def __init__(
        self,
        config: ConfigDict,
        pieces: WordPieces,
        train_documents: list[list[TaggedSentence]],
        held_out: list[list[TaggedSentence]],
    ):
        self.settings, self._config, self._pieces = config.stages.tagger, config, pieces
        self.modules = Modules(config.model, pieces.size, ("tagger",))
        self._held_out = held_out
        self._source = TaggerSource(
            train_documents,
            pieces,
            labels(config.model.entities),
            config.stages.tagger.row_length,
            config.stages.tagger.unknown_share,
            config.seed,
        )

    def batch(
        self, step: int, batch_rows: BatchRows = None, params: Parameters | None = None
    ) -> TaggerBatch:
        """Token rows and the labels of their words."""
        return self._source.batch(step, self.settings.batch, batch_rows)

    def loss(
        self, networks: SimpleNamespace, batch: TaggerBatch, key: Key[Array, ""] | None
    ) -> Loss:
        """Cross-entropy per word."""
        logits = networks.tagger.label_logits(*batch.rows, key)
        log_p = losses.token_log_probs(logits, batch.labels)
        loss, metrics = losses.masked_lm_loss(log_p, batch.weights)
        return loss, metrics | losses.real_pieces(len(batch.rows.mask), batch.rows.mask)

    def weight(self, batch: TaggerBatch) -> Float[Array, ""]:
        """Number of words in the batch."""
        return batch.weights.sum()

    def evaluate(self, step: int, params: Parameters, evaluation: Evaluator) -> dict[str, float]:
        """Scores of conlleval on the held-out file, in percent; empty without a file."""
        if not self._held_out:
            return {}
        tagger = Tagger(self._config, self._pieces, jax.device_get(params["tagger"]))
        total = evaluate_tagger(tagger, self._held_out).total
        return {
            "held_out_precision": total.precision,
            "held_out_recall": total.recall,
            "held_out_fb1": total.fb1,
        }


def evaluate_tagger(tagger: Tagger, documents: list[list[TaggedSentence]]) -> Scores:
    """Scores of conlleval for a tagger on tagged documents."""
    guessed = tagger.tags(sentences_of(documents))
    return score(
        (sentence.tags, tags)
        for document, found in zip(documents, guessed, strict=True)
        for sentence, tags in zip(document, found, strict=True)
    )
