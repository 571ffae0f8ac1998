"""Converts `config.json` of a weights folder to `config.model` and back; checks array shapes."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from realm_jax.config_checks import dense_layers
from realm_jax.defaults import default
from realm_jax.errors import InputError, MismatchError
from realm_jax.interop.form import PAPER, Form, form_of, stored_form, stored_keys

# The files of a weights folder.
DESCRIPTION, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocab.txt"
# Settings that our model does not support changing: key -> value.
_FIXED = {
    "layer_norm_eps": 1e-12,
    "reader_layer_norm_eps": 1e-3,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "is_decoder": False,
}
_GELU = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
_ACTIVATION = {"erf": "gelu", "tanh": "gelu_new"}
# our key -> (their key, an array with this size, its axis, the factor of that axis)
_SIZES = {
    "vocabulary": ("vocab_size", "bert.embeddings.word_embeddings.weight", 0, 1),
    "hidden": ("hidden_size", "bert.embeddings.word_embeddings.weight", 1, 1),
    "positions": ("max_position_embeddings", "bert.embeddings.position_embeddings.weight", 0, 1),
    "mlp": ("intermediate_size", "bert.encoder.layer.0.intermediate.dense.bias", 0, 1),
    "embedding": ("retriever_proj_size", "cls.dense.bias", 0, 1),
    "span": ("span_hidden_size", "qa_outputs.dense_intermediate.bias", 0, 2),
    "layers": ("num_hidden_layers", None, 0, 1),
    "heads": ("num_attention_heads", None, 0, 1),
    "widest": ("max_span_width", None, 0, 1),
}
_OPTIONAL = {"embedding": 0, "span": 0, "widest": 10}  # with the value if it is not specified
_ALSO = {"cls.predictions.bias": "vocabulary"}  # further arrays that must have the same size


@dataclass(frozen=True)
class Sizes:
    """The values of `config.model` for these weights; `widest`: longest answer span, in tokens.

    `form` is that of the embedder; the paper's if there is none.
    """

    layers: int
    hidden: int
    heads: int
    mlp: int
    positions: int
    vocabulary: int
    gelu: str
    embedding: int
    span: int
    widest: int
    form: Form = PAPER

    def model(self) -> ConfigDict:
        """The default `config.model` with these sizes and this form."""
        model = default().model
        for key, value in (asdict(self) | self.form.keys()).items():
            if key in model and (value or key not in _OPTIONAL):
                model[key] = value
        return model


def sizes_of(
    model: ConfigDict, vocabulary: int, widest: int, embedder: Any = None, longest: int = 0
) -> Sizes:
    """The sizes of a model of this package.

    Args:
      model: `config.model`.
      vocabulary: V.
      widest: `config.lengths.answer`.
      embedder: its params, for a learned temperature or null score.
      longest: see `Form`.
    """
    known = {key: model[key] for key in Sizes.__annotations__ if key in model}
    form = form_of(model, embedder, longest)
    return Sizes(**known, vocabulary=vocabulary, widest=widest, form=form)


def read_description(path: Path) -> dict[str, Any]:
    """Reads a `config.json`.

    Raises:
      InputError: the file does not exist or is not a JSON object.
    """
    if not path.is_file():
        raise InputError(
            "the weights have no description", where=path, expected=f"a {DESCRIPTION} in the folder"
        )
    try:
        found = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError("not a model's description", where=path, found=error) from error
    if not isinstance(found, dict):
        raise InputError(
            "not a model's description", where=path, expected="a JSON object", found=found
        )
    return found


def infer_sizes(
    description: dict[str, Any],
    networks: dict[str, dict[str, np.ndarray]],
    where: object,
    form: Form | None = None,
) -> Sizes:
    """Infers the sizes from the description and the array shapes, which must agree.

    Args:
      description: `config.json`.
      networks: arrays by canonical name.
      where: for error messages.
      form: of the embedder of a sentence-transformers folder; None: the paper's.

    Raises:
      MismatchError: they disagree (for example in the vocabulary size), or the model needs a
        setting that ours does not support.
      InputError: neither gives one of the sizes.
    """
    for key, value in _FIXED.items():
        _require(where, key, value, description.get(key, value))
    activation = description.get("hidden_act", "gelu")
    if activation not in _GELU:
        _require(where, "hidden_act", " or ".join(_GELU), activation)
    sizes: dict[str, int] = {}
    for ours, (theirs, array, axis, times) in _SIZES.items():
        shown = [names[array].shape[axis] // times for names in networks.values() if array in names]
        stated = [description[theirs]] if description.get(theirs) is not None else []
        if ours == "layers" and not stated:
            shown = [_depth(names) for names in networks.values()]
        for value in shown:
            _require(where, theirs, (stated or shown)[0], value)
        if not stated + shown and ours not in _OPTIONAL:
            raise InputError(
                "a size of the model is unknown",
                where=where,
                expected=theirs,
                fix="add --heads=N (12 in BERT-base)" if ours == "heads" else None,
            )
        sizes[ours] = int([*stated, *shown, _OPTIONAL.get(ours)][0])
    for name, ours in _ALSO.items():
        for names in networks.values():
            if name in names:
                _require(f"{where}, {name}", _SIZES[ours][0], sizes[ours], names[name].shape[0])
    if form is None:
        form = Form(**stored_form(description))
    elif not form.is_paper:
        layers = dense_layers(form.projection)
        sizes["embedding"] = layers[-1][0] if layers else sizes["hidden"]
    return Sizes(**sizes, gelu=_GELU[activation], form=form)


def to_description(sizes: Sizes, architecture: str) -> dict[str, Any]:
    """A `config.json` that Hugging Face's BERT classes read; the inverse of `infer_sizes`."""
    stated = {theirs: getattr(sizes, ours) for ours, (theirs, *_) in _SIZES.items()}
    stated = {theirs: value for theirs, value in stated.items() if value}
    return {
        "architectures": [architecture],
        "model_type": "bert",
        "hidden_act": _ACTIVATION[sizes.gelu],
        "pad_token_id": 0,
        **_FIXED,
        **stated,
        **stored_keys(sizes.form),
    }


def _depth(names: dict[str, np.ndarray]) -> int:
    return len({name.split(".")[3] for name in names if name.startswith("bert.encoder.layer.")})


def _require(where: object, key: str, expected: object, found: object) -> None:
    if expected != found:
        what = "another vocabulary size" if key == "vocab_size" else f"another {key}"
        raise MismatchError(
            f"weights with {what}",
            where=where,
            expected=f"{key} {expected}",
            found=f"{key} {found}",
        )
