"""Fills the `[MASK]` of a sentence, with and without retrieval (REALM Table 3)."""

import copy
import re
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from realm_jax.data.padding import padded_indices
from realm_jax.data.rows import Rows, joint_rows, query_rows
from realm_jax.errors import InputError
from realm_jax.inference.answerer import Answerer
from realm_jax.inference.evidence import Displayable, Evidence
from realm_jax.losses import (
    marginal_log_likelihood,
    marginalise_candidates,
    passage_log_likelihood,
    retrieval_log_prob,
)
from realm_jax.retrieval.retriever import select_candidates

_MASKS = re.compile(r"\[mask\]|<mask>", re.IGNORECASE)  # as other models and users write it
MASK = "[MASK]"


@dataclass(frozen=True)
class Filling(Displayable):
    """A filled mask, and the effect of retrieval on it.

    Attributes:
      text: with the `[MASK]`.
      answer: the text that fills it.
      probability: p(y|x) of `answer`.
      without_retrieval: p(y|null passage, x) of `answer`.
      answer_without_retrieval: the most probable text if only the null passage is read.
      index_step: of the index that was searched.
      passages: the candidates, the null passage first.
    """

    text: str
    answer: str
    probability: float
    without_retrieval: float
    answer_without_retrieval: str
    index_step: int
    passages: list[Evidence]

    @property
    def headline(self) -> str:
        """See `Displayable`."""
        return (
            f"{self.answer}   p(y|x) {self.probability:.3f}   without retrieval "
            f"{self.without_retrieval:.2g} (best answer: {self.answer_without_retrieval!r})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return asdict(self)


def with_mask(text: str) -> str:
    """The text with `[MASK]` for `[mask]`, `<mask>` and other cases of these."""
    return _MASKS.sub(MASK, text)


class MaskFiller:
    """Fills masks with the pre-trained embedder and reader of a run."""

    def __init__(self, answerer: Answerer):
        self._a = answerer

    def over(self, answerer: Answerer) -> "MaskFiller":
        """Returns a filler that searches the passages of another answerer."""
        other = copy.copy(self)
        other._a = answerer
        return other

    def fill(self, text: str, answer: str | None = None) -> Filling:
        """Fills the `[MASK]` of a text.

        Args:
          text: with one `[MASK]`; see `with_mask`.
          answer: its probability is computed; None: the answer of 1 to `lengths.masks` word pieces
            with the highest mean log p per piece.

        Raises:
          InputError: not exactly one `[MASK]`, or the text is longer than `lengths.query`.
        """
        text = with_mask(text)
        if text.count(MASK) != 1:
            raise InputError(
                f"the text does not have exactly one {MASK}",
                expected=1,
                found=text.count(MASK),
            )
        longest = self._a.config.lengths.masks
        if answer is not None:
            pieces = self._pieces(answer)
            if not 1 <= len(pieces) <= longest:
                raise InputError(
                    "the answer does not fit into the mask",
                    expected=f"1 to {longest} word pieces (lengths.masks)",
                    found=len(pieces),
                )
            return self._filled(text, pieces, None)[1]
        unmasked = sum(len(self._pieces(part)) for part in text.split(MASK))
        widest = min(longest, self._a.config.lengths.query - 2 - unmasked)
        # If not even one piece fits, the first try raises InputError.
        tries = [self._filled(text, None, width) for width in range(1, max(widest, 1) + 1)]
        return max(tries, key=lambda scored: scored[0])[1]

    def _pieces(self, text: str) -> np.ndarray:
        return self._a.store.vocabulary.pieces([text])[0][0]

    def _filled(
        self, text: str, answer: np.ndarray | None, width: int | None
    ) -> tuple[float, Filling]:
        """Returns the mean log p per word piece, and the filled mask."""
        count = len(answer) if answer is not None else width
        assert count is not None
        a, words = self._a, self._a.store.vocabulary
        before, after = (self._pieces(part) for part in text.split(MASK))
        pieces = np.concatenate([before, np.full(count, words.mask), after]).astype(np.int32)
        if len(pieces) > a.config.lengths.query - 2:
            raise InputError(
                "the text is too long to be a query",
                expected=f"at most {a.config.lengths.query - 2} word pieces (lengths.query)",
                found=len(pieces),
            )
        query = query_rows([pieces], a.config.lengths.query, words)
        # Always `lengths.masks` positions, so that one compiled program serves all widths.
        slots = np.arange(a.config.lengths.masks, dtype=np.int32)
        used = slots < count
        positions = np.where(used, slots + len(before) + 1, 0)[None]
        chosen, log_p_z, log_p = self._marginal(text, query, positions)
        by_token = np.asarray(
            marginalise_candidates(jnp.asarray(log_p_z[None]), jnp.asarray(log_p[None]))
        )[0]
        tokens = (
            by_token.argmax(-1)
            if answer is None
            else answer[padded_indices(len(answer), len(slots))]
        )
        token_log_p = np.take_along_axis(log_p, tokens[None, :, None], axis=-1)[..., 0]
        weights = used[None].astype(np.float32)
        by_passage = passage_log_likelihood(token_log_p[None], weights)[0]
        total = float(
            marginal_log_likelihood(
                jnp.asarray(log_p_z[None]),
                jnp.asarray(token_log_p[None]),
                jnp.asarray(weights),
                "paper",
            )[0]
        )
        evidence = [
            self._evidence(passage, float(np.exp(z)), float(np.exp(p)))
            for passage, z, p in zip(chosen, log_p_z, by_passage, strict=True)
        ]
        filling = Filling(
            text=text,
            answer=words.decode(tokens[:count]),
            probability=float(np.exp(total)),
            without_retrieval=float(np.exp(by_passage[0])),
            answer_without_retrieval=words.decode(log_p[0].argmax(-1)[:count]),
            index_step=a.index.step,
            passages=evidence,
        )
        return total / count, filling

    def _marginal(
        self, text: str, query: Rows, positions: np.ndarray
    ) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Candidates (the null passage first), log p(z|x) [K] and log p(.|z, x) [K, M, V]."""
        a, retrieval = self._a, self._a.config.retrieval
        vector = a.networks.query_vectors("embedder", query)
        found, _ = a.find([text.replace(MASK, " ")], lambda: vector, retrieval.candidates)
        chosen, valid = select_candidates(found, None, retrieval.candidates, retrieval.null_passage)
        scores = self._scores(vector[0], chosen[0])
        log_p_z = np.asarray(retrieval_log_prob(jnp.asarray(scores[None]), jnp.asarray(valid)))[0]
        joint = joint_rows(query, a.store, chosen, a.config.lengths.joint)
        rows = Rows(*(part[0] for part in joint))
        repeated = np.repeat(positions, len(chosen[0]), axis=0)
        return chosen[0].tolist(), log_p_z, a.networks.log_probabilities(rows, repeated)

    def _scores(self, query: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Relevance of the candidates [K], the null passage first; their vectors are fresh."""
        networks = self._a.networks
        rows = networks.rows.passages(self._a.store, chosen, networks.rows.passage)
        products = np.einsum("e,ke->k", query, networks.vectors("embedder", rows))
        scores = networks.scores("embedder", products)
        null = networks.null_score("embedder")
        if null is not None:
            scores[0] = null
        return scores

    def _evidence(self, passage: int, p_z: float, p_answer: float) -> Evidence:
        if passage < 0:
            return Evidence(passage, "(no passage)", "", p_z, p_answer, None)
        store = self._a.store
        title, body = store.title(passage), store.body(passage)
        document_id = store.document_id(passage)
        return Evidence(passage, title, body, p_z, p_answer, None, document_id)
