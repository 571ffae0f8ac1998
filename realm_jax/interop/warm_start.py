"""Initialises the networks of a run from external weights (`config.model.start`)."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from realm_jax.errors import MismatchError
from realm_jax.interop.detect import QUESTIONS
from realm_jax.interop.hub import download, is_hub_id
from realm_jax.interop.names import SPAN_HEAD, network_of
from realm_jax.interop.vocabulary_files import read_pieces
from realm_jax.interop.weights import Weights, open_weights
from realm_jax.models.modules import NETWORKS, Modules, Parameters

log = logging.getLogger(__name__)

BUILT_IN = "almanac"  # the weights included in the package
# Sources of each network, in order of preference: REALM starts embedder and reader from one BERT.
_FROM = {
    "embedder": ("embedder", "bert", QUESTIONS, "reader"),
    "reader": ("reader", "bert", "question_reader", "embedder"),
    SPAN_HEAD: ("question_reader", "reader"),
    "tagger": ("bert", "reader", "embedder"),
}
_FOR_QUESTIONS = {
    "question_embedder": ("embedder", (QUESTIONS, "embedder")),
    "question_reader": ("reader", ("question_reader", "reader")),
    SPAN_HEAD: (SPAN_HEAD, ("question_reader", "reader")),
}


def weights_folder(start: str) -> Path:
    """The folder of a `config.model.start`; a model on the Hub is downloaded.

    Raises:
      InputError: see `hub.download`.
    """
    if start == BUILT_IN:
        return Path(__file__).parents[1] / "weights"
    return download(start) if is_hub_id(start) else Path(start)


def load_networks(
    start: str, drawn: Parameters, model: ConfigDict, pieces: Sequence[str] | None = None
) -> Parameters:
    """Replaces initial parameters by the weights of `start`, as far as it has them.

    Args:
      start: `config.model.start`; "" loads nothing.
      drawn: random initial parameters. They are kept where `start` has none, for example the
        embedder's projection if `start` is a BERT.
      model: `config.model`.
      pieces: the vocabulary of the corpus, which must be that of the weights; None: not compared.

    Raises:
      InputError: the weights do not exist.
      MismatchError: the weights have another width, vocabulary, gelu or form of the embedder.
    """
    if not start:
        return {}
    folder = weights_folder(start)
    weights = open_weights(folder)
    _require_pieces(weights, pieces, start)
    if "embedder" in drawn:
        _require_form(weights, model, folder)
    if weights.sizes.gelu != model.gelu:
        raise MismatchError(
            "the weights were trained with another gelu",
            where=folder,
            expected=f"config.model.gelu {model.gelu}",
            found=weights.sizes.gelu,
            fix=f"--config.model.gelu={weights.sizes.gelu}",
        )
    loaded = {}
    for network, parameters in drawn.items():
        first = next((name for name in _FROM[network] if name in weights.networks), None)
        known = network_of(weights.parts(first), network) if first else {}
        loaded[network], used = fill_params(parameters, known, f"{folder}, {network}")
        log.info("%s starts from %s: %d arrays", network, folder, used)
    return loaded


# Keys of the embedder's form that its arrays depend on.
_LAYERS = ("pooling", "projection", "normalise", "passage_row", "query_prompt", "passage_prompt")


def _require_form(weights: Weights, model: ConfigDict, folder: Path) -> None:
    """Raises a MismatchError if the weights have an embedder of another form than the config."""
    if not {"embedder", QUESTIONS} & weights.networks.keys():
        return
    form = weights.sizes.form.keys()
    for key in _LAYERS:
        if form[key] != model[key]:
            raise MismatchError(
                "the weights have another form of embedder",
                where=folder,
                expected=f"config.model.{key} {model[key]!r}",
                found=repr(form[key]),
                fix=f"--config.model.{key}={form[key]}, or --config.model.like_start=true in a new "
                "workdir",
            )


def _require_pieces(weights: Weights, pieces: Sequence[str] | None, start: str) -> None:
    if pieces is None or weights.vocabulary is None:
        return
    theirs = read_pieces(weights.vocabulary)
    if theirs == list(pieces):
        return
    first = next(
        (i for i, both in enumerate(zip(theirs, pieces, strict=False)) if len({*both}) > 1), 0
    )
    raise MismatchError(
        "the corpus was built with another vocabulary than the weights",
        where=weights.vocabulary,
        expected=f"the {len(pieces)} word pieces of the corpus",
        found=f"{len(theirs)} word pieces; the first that differs has id {first}",
        fix=f"build the corpus with --vocab={start if is_hub_id(start) else weights.vocabulary}",
    )


def load_for_questions(start: str, shapes: Parameters, model: ConfigDict) -> Parameters:
    """The networks of weights that answer questions: embedder, reader and span head.

    Args:
      start: `config.model.start`.
      shapes: by network: embedder, reader and span_head.
      model: `config.model`.

    Returns:
      `question_embedder`, `question_reader` and `span_head`; {} if the weights lack one of them.
    """
    weights = open_weights(weights_folder(start)) if start else None
    found = {}
    for name, (network, sources) in _FOR_QUESTIONS.items():
        first = next((one for one in sources if weights and one in weights.networks), None)
        if weights is None or first is None:
            return {}
        known = network_of(weights.parts(first), network)
        found[name], used = fill_params(shapes[network], known, f"{start}, {first}")
        if network == SPAN_HEAD and not used:
            return {}
    # The masked-LM head of a reader that only answers questions may be missing.
    return jax.tree.map(
        lambda leaf: leaf if isinstance(leaf, np.ndarray) else np.zeros(leaf.shape, leaf.dtype),
        found,
    )


def require_shapes(weights: Weights) -> None:
    """Checks that all arrays have the shapes that `weights.sizes` implies.

    Raises:
      MismatchError: an array has another shape; the message has its name and both shapes.
    """
    shapes = Modules(weights.sizes.model(), weights.sizes.vocabulary, tuple(NETWORKS)).shapes
    for name in weights.networks:
        parts = weights.parts(name)
        for network, expected in shapes.items():
            fill_params(expected, network_of(parts, network), name)


def fill_params(drawn: Any, given: Any, where: str) -> tuple[Any, int]:
    """Replaces the leaves of `drawn` that `given` has too, and counts them.

    Raises:
      MismatchError: two leaves differ in shape.
    """
    if not isinstance(drawn, dict):
        if drawn.shape != given.shape:
            raise MismatchError(
                "weights do not fit the model",
                where=where,
                expected=list(drawn.shape),
                found=list(given.shape),
                fix="set config.model to the sizes in the config.json of the weights, and use "
                "their vocabulary",
            )
        return given.astype(np.float32), 1
    full, used = {}, 0
    for name, leaf in drawn.items():
        if name in given:
            full[name], count = fill_params(leaf, given[name], f"{where}.{name}")
            used += count
        else:
            full[name] = leaf
    return full, used
