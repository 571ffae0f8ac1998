"""Answers without retrieval: the pre-trained reader with the null passage."""

from dataclasses import dataclass

import numpy as np

from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows, query_rows
from realm_jax.inference.answerer import Answerer


@dataclass(frozen=True)
class ClosedBookAnswer:
    """An answer without retrieval, and its probability p(y|null passage, x)."""

    answer: str
    probability: float


class ClosedBook:
    """Answers with the pre-trained reader, whose input is `question [MASK]` and no passage.

    The fine-tuned reader cannot answer without a passage, because it only extracts spans.
    """

    def __init__(self, answerer: Answerer):
        self._a = answerer

    def ask(self, question: str) -> ClosedBookAnswer | None:
        """Returns the answer of 1 to `lengths.masks` word pieces with the highest mean log p.

        Returns None if question and masks are longer than `lengths.query`.
        """
        lengths, words = self._a.config.lengths, self._a.store.vocabulary
        question_ids = words.pieces([question])[0][0]
        widths = np.arange(1, lengths.masks + 1)
        if len(question_ids) + lengths.masks > lengths.query - 2:
            return None
        masked = [np.append(question_ids, np.full(width, words.mask, np.int32)) for width in widths]
        queries = query_rows(masked, lengths.query, words)
        null = np.full((len(widths), 1), NULL_PASSAGE, np.int64)
        joint = joint_rows(queries, self._a.store, null, lengths.joint)
        slots = np.arange(lengths.masks)
        used = slots < widths[:, None]
        positions = np.where(used, slots + len(question_ids) + 1, 0).astype(np.int32)
        rows = Rows(*(part[:, 0] for part in joint))
        log_p = self._a.networks.log_probabilities(rows, positions)
        total = np.where(used, log_p.max(-1), 0.0).sum(-1)
        best = int((total / widths).argmax())
        answer = log_p[best].argmax(-1)[: widths[best]]
        return ClosedBookAnswer(words.decode(answer), float(np.exp(total[best])))
