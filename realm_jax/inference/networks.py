"""The networks of an export, moved to the device and compiled on first use."""

import shlex
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int
from ml_collections import ConfigDict

from realm_jax.artifacts.export import Export
from realm_jax.data.embedder_rows import EmbedderRows
from realm_jax.data.rows import Rows
from realm_jax.errors import InputError
from realm_jax.models.embedder import null_score_of, temperature_of
from realm_jax.models.modules import Modules, Parameters
from realm_jax.models.span_head import INVALID_SPAN_SCORE
from realm_jax.parallel.program import Program
from realm_jax.retrieval.encoder import Encoder
from realm_jax.storage.layout import RunDir, step_name
from realm_jax.text.wordpiece import WordPieces

EMBEDDERS = ("embedder", "question_embedder")


class Networks:
    """Computes with the networks of one export; can be shared by several answerers.

    Args:
      run: the run folder.
      export: of this run.
      config: of the run.
      words: the vocabulary.

    Attributes:
      rows: makes the rows of the embedder.
    """

    def __init__(self, run: RunDir, export: Export, config: ConfigDict, words: WordPieces):
        self._run, self._export, self._config, self._vocabulary = run, export, config, words.size
        self.rows = EmbedderRows(config, words)
        self._encoder = Encoder(config, words.size)
        self._placed: dict[str, Any] = {}

    def has(self, network: str) -> bool:
        """Whether the export has a network; only fine-tuned runs have those for questions."""
        return network in self._export.networks

    def query_vectors(self, embedder: str, queries: Rows) -> Float32[np.ndarray, "B E"]:
        """Embeds query rows [B, Q] without prompt (`data.rows.query_rows`); see `vectors`."""
        return self.vectors(embedder, self.rows.queries(queries))

    def scores(self, embedder: str, products: Float[Any, "*B"]) -> Float[np.ndarray, "*B"]:
        """Relevance scores f(x, z) from inner products of query and passage vectors.

        Args:
          embedder: the network that embedded the queries.
          products: inner products.
        """
        return np.asarray(products / self._temperature(embedder), np.float32)

    def null_score(self, embedder: str) -> float | None:
        """f(x, null); None if it is the score of the null passage's row."""
        score = null_score_of(self._config.model, self._export.networks[embedder])
        return None if score is None else float(score)

    def _temperature(self, embedder: str) -> float:
        return float(temperature_of(self._config.model, self._export.networks[embedder]))

    def vectors(self, embedder: str, rows: Rows) -> Float32[np.ndarray, "B E"]:
        """Embeds rows of the embedder (`EmbedderRows`).

        Args:
          embedder: `embedder` (pre-trained) or `question_embedder` (fine-tuned).
          rows: [B, L].

        Raises:
          InputError: the export has no such network.
        """
        return self._encoder.embed(self._network(embedder), rows)

    def log_probabilities(
        self, joint: Rows, positions: Int[np.ndarray, "R M"]
    ) -> Float32[np.ndarray, "R M V"]:
        """log p(w|z, x) of each word piece w at masked positions of joint rows [R, J].

        The reader is the pre-trained one.
        """
        return np.asarray(self._read(self._network("reader"), joint, positions))

    def span_scores(
        self, joint: Rows, relevance: Float32[np.ndarray, "B T"]
    ) -> Float32[np.ndarray, "B T J W"]:
        """Span score + relevance score, as in fine-tuning (as in ORQA).

        Args:
          joint: rows [B, T, J] of questions with the passages to read.
          relevance: relevance scores of these passages.

        Returns:
          Score of the span from piece j to piece j + w; -inf if the span is not within the body.

        Raises:
          InputError: the run was not fine-tuned.
        """
        reader = {
            "reader": self._network("question_reader"),
            "span_head": self._network("span_head"),
        }
        return np.asarray(self._spans(reader, joint, relevance))

    def _network(self, name: str) -> Parameters:
        if name not in self._placed:
            if not self.has(name):
                command = f"realm finetune --workdir={shlex.quote(str(self._run.workdir))}"
                raise InputError(
                    "this run was not fine-tuned on questions",
                    where=self._run.export / step_name(self._export.step),
                    expected=f"a {name}",
                    found=", ".join(sorted(self._export.networks)),
                    fix=f"{command} --questions=FILE, or ask with a [MASK]",
                )
            place = self._encoder.place if name in EMBEDDERS else jax.device_put
            self._placed[name] = place(self._export.networks[name])
        return self._placed[name]

    def _modules(self, *names: str) -> Modules:
        return Modules(self._config.model, self._vocabulary, names)

    @cached_property
    def _read(self) -> Callable[..., Float[Array, "R M V"]]:
        modules = self._modules("reader")
        return Program(
            "answer/read",
            lambda p, rows, positions: jax.nn.log_softmax(
                modules.bind({"reader": p}).reader.mlm_logits(*rows, positions), axis=-1
            ),
        )

    @cached_property
    def _spans(self) -> Callable[..., Float[Array, "B T J W"]]:
        modules = self._modules("reader", "span_head")
        widest = self._config.lengths.answer

        def scores(
            parameters: Parameters, joint: Rows, relevance: Float[Array, "B T"]
        ) -> Float[Array, "B T J W"]:
            size, read, length = joint.ids.shape
            networks = modules.bind(parameters)
            flat = Rows(*(part.reshape(-1, length) for part in joint))
            hidden = networks.reader.bert(*flat)
            spans = networks.span_head.span_logits(hidden, flat.mask, flat.segments, widest)
            spans = spans.reshape(size, read, length, -1)
            return jnp.where(
                spans > INVALID_SPAN_SCORE, spans + relevance[:, :, None, None], -jnp.inf
            )

        return Program("answer/spans", scores)
