"""What a model says by heart: the pre-trained reader beside the null passage alone."""

from dataclasses import dataclass

import numpy as np

from realm_jax.data.rows import NULL_PASSAGE, Rows, joint_rows, query_rows
from realm_jax.inference.answerer import Answerer


@dataclass(frozen=True)
class ClosedBookAnswer:
    """What was said without retrieval, and p(answer given the question and no passage)."""

    answer: str
    probability: float


class ClosedBook:
    """The pre-trained reader of a run, asked `question [MASK]` with no passage to read.

    Fine-tuning teaches only to copy spans, so there is no other reader that could answer without a
    passage.
    """

    def __init__(self, answerer: Answerer):
        self._a = answerer

    def ask(self, question: str) -> ClosedBookAnswer | None:
        """The likeliest answer per piece of 1 to `lengths.masks` pieces.

        None if the question leaves no room for a blank of that many within `lengths.query`.
        """
        lengths, words = self._a.config.lengths, self._a.store.vocabulary
        asked = words.pieces([question])[0][0]
        widths = np.arange(1, lengths.masks + 1)
        if len(asked) + lengths.masks > lengths.query - 2:
            return None
        masked = [np.append(asked, np.full(width, words.mask, np.int32)) for width in widths]
        queries = query_rows(masked, lengths.query, words)
        null = np.full((len(widths), 1), NULL_PASSAGE, np.int64)
        joint = joint_rows(queries, self._a.store, null, lengths.joint)
        places = np.arange(lengths.masks)
        used = places < widths[:, None]
        positions = np.where(used, places + len(asked) + 1, 0).astype(np.int32)
        rows = Rows(*(part[:, 0] for part in joint))
        log_p = self._a.networks.log_probabilities(rows, positions)
        total = np.where(used, log_p.max(-1), 0.0).sum(-1)
        best = int((total / widths).argmax())
        said = log_p[best].argmax(-1)[: widths[best]]
        return ClosedBookAnswer(words.decode(said), float(np.exp(total[best])))
