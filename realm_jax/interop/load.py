"""One door for weights made elsewhere: a folder with `config.json` and `model.safetensors`.

Names are those of Hugging Face's BERT (`bert.*`, `cls.predictions.*`) and REALM (`qa_outputs.*`); a
prefix of another model that wraps BERT is cut, and the first names of BERT's norms (gamma, beta)
are known. Embedder and reader both start from the same BERT, as REALM's did.
"""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from realm_jax.errors import InputError, MismatchError
from realm_jax.interop.names import NETWORK_PARTS, SPAN_HEAD, from_bert_names
from realm_jax.models.modules import Parameters

log = logging.getLogger(__name__)

WEIGHTS, DESCRIPTION = "model.safetensors", "config.json"
BUILT_IN = "almanac"  # the weights shipped in the package


def weights_folder(start: str) -> Path:
    """The folder that a `config.model.start` names."""
    return Path(__file__).parents[1] / "weights" if start == BUILT_IN else Path(start)


def load_networks(start: str, drawn: Parameters) -> Parameters:
    """The networks in `drawn`, filled from `start` where it has them.

    Args:
      start: `config.model.start`; "" loads nothing.
      drawn: fresh parameters, kept where `start` has none (the embedder's projection).

    Raises:
      InputError: no such weights.
      MismatchError: weights of another width or vocabulary; names the first.
    """
    if not start:
        return {}
    folder = weights_folder(start)
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise InputError(
                "no weights to start from",
                where=folder / name,
                expected=f"a folder with {DESCRIPTION} and {WEIGHTS}",
                fix="config.model.start names a folder, 'almanac', or nothing",
            )
    heads = json.loads((folder / DESCRIPTION).read_text())["num_attention_heads"]
    given = from_bert_names(load_file(folder / WEIGHTS), heads)
    loaded = {}
    for network, parameters in drawn.items():
        theirs = given.get(SPAN_HEAD, {}) if network == SPAN_HEAD else given
        known = {part: theirs[part] for part in NETWORK_PARTS[network] if part in theirs}
        loaded[network], used = _filled(parameters, known, f"{folder / WEIGHTS}, {network}")
        log.info("%s starts from %s: %d arrays", network, folder, used)
    return loaded


def _filled(drawn: Any, given: Any, where: str) -> tuple[Any, int]:
    """`drawn` with every leaf replaced that `given` has too, and how many were."""
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
    filled, used = {}, 0
    for name, leaf in drawn.items():
        if name in given:
            filled[name], count = _filled(leaf, given[name], f"{where}.{name}")
            used += count
        else:
            filled[name] = leaf
    return filled, used
