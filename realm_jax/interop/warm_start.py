"""The networks of a run from weights made elsewhere: what `config.model.start` names."""

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

BUILT_IN = "almanac"  # the weights shipped in the package
# Where each network of a run looks, in order: REALM starts embedder and reader from one BERT.
_FROM = {
    "embedder": ("embedder", "bert", QUESTIONS, "reader"),
    "reader": ("reader", "bert", "question_reader", "embedder"),
    SPAN_HEAD: ("question_reader", "reader"),
    "tagger": ("bert", "reader", "embedder"),
}


def weights_folder(start: str) -> Path:
    """The folder that a `config.model.start` names."""
    return Path(__file__).parents[1] / "weights" if start == BUILT_IN else Path(start)


def load_networks(start: str, drawn: Parameters, model: ConfigDict) -> Parameters:
    """The networks in `drawn`, filled from `start` where it has them.

    Args:
      start: `config.model.start`; "" loads nothing.
      drawn: fresh parameters, kept where `start` has none (the projection, where it is a BERT).
      model: `config.model`.

    Raises:
      InputError: no such weights.
      MismatchError: weights of another width, vocabulary or gelu; names both.
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
        loaded[network], used = filled(parameters, known, f"{folder}, {network}")
        log.info("%s starts from %s: %d arrays", network, folder, used)
    return loaded


def require_shapes(weights: Weights) -> None:
    """Refuses arrays that are not of the shapes that `weights.sizes` asks for.

    Raises:
      MismatchError: names the first such array, with both shapes.
    """
    shapes = Modules(weights.sizes.model(), weights.sizes.vocabulary, tuple(NETWORKS)).shapes
    for name in weights.networks:
        parts = weights.parts(name)
        for network, expected in shapes.items():
            filled(expected, network_of(parts, network), name)


def filled(drawn: Any, given: Any, where: str) -> tuple[Any, int]:
    """`drawn` with every leaf replaced that `given` has too, and how many were.

    Raises:
      MismatchError: leaves of different shapes.
    """
    if not isinstance(drawn, dict):
        if drawn.shape != given.shape:
            raise MismatchError(
                "weights do not fit the model",
                where=where,
                expected=list(drawn.shape),
                found=list(given.shape),
                fix="set config.model to the sizes in the weights' config.json, and use the "
                "vocabulary they were trained with",
            )
        return given.astype(np.float32), 1
    full, used = {}, 0
    for name, leaf in drawn.items():
        if name in given:
            full[name], count = filled(leaf, given[name], f"{where}.{name}")
            used += count
        else:
            full[name] = leaf
    return full, used
