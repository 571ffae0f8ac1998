"""Initialises the networks of a run from external weights (`config.model.start`)."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from realm_jax.errors import MismatchError
from realm_jax.interop.detect import QUESTIONS
from realm_jax.interop.names import SPAN_HEAD, network_of
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


def weights_folder(start: str) -> Path:
    """The folder of a `config.model.start`."""
    return Path(__file__).parents[1] / "weights" if start == BUILT_IN else Path(start)


def load_networks(start: str, drawn: Parameters, model: ConfigDict) -> Parameters:
    """Replaces initial parameters by the weights of `start`, as far as it has them.

    Args:
      start: `config.model.start`; "" loads nothing.
      drawn: random initial parameters. They are kept where `start` has none, for example the
        embedder's projection if `start` is a BERT.
      model: `config.model`.

    Raises:
      InputError: the weights do not exist.
      MismatchError: the weights have another width, vocabulary size or gelu.
    """
    if not start:
        return {}
    folder = weights_folder(start)
    weights = open_weights(folder)
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
