"""Writes an embedder as a sentence-transformers folder.

The paper's form is Transformer, Pooling, Dense, Dense, LayerNorm. The LayerNorm of
sentence-transformers has eps 1e-5, ours 1e-12. Layer normalisation is invariant to a scale of its
input. Therefore the projection is written times 2^12, which reduces the effect of eps by 2^24. A
power of two loses no precision, and reading divides by it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from realm_jax.config_checks import dense_layers
from realm_jax.errors import InputError
from realm_jax.interop.form import Form
from realm_jax.interop.metadata import WEIGHTS, Sizes
from realm_jax.interop.save import write_json, write_network
from realm_jax.interop.sentence_modules import LENGTH, MODULES, PROMPTS, SCALE_KEY

_SCALE = 4096.0
_TORCH_ACTIVATIONS = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
}
_FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
_FLAGS["mean_sqrt_len"] = "mean_sqrt_len_tokens"


def write_sentence_transformers(
    folder: Path, names: dict[str, np.ndarray], sizes: Sizes, vocabulary: Path | None
) -> None:
    """Writes one tower; `SentenceTransformer(folder)` returns the vectors of `Model.embed`.

    The transformer is written last: without the modules, its folder would be that of a BERT.

    In the paper's form a passage is encoded as the pair (title, body), a query as a string. In the
    other forms `encode_query` and `encode_document` take strings and add the prompts.

    Args:
      folder: new or empty.
      names: arrays of an embedder by canonical name.
      sizes: sizes and form of its model.
      vocabulary: its `vocab.txt`.

    Raises:
      InputError: there is no vocabulary, the network is not an embedder, or it has a form that
        these modules cannot express.
    """
    form = sizes.form
    if vocabulary is None or (form.is_paper and "cls.dense.weight" not in names):
        raise InputError(
            "sentence-transformers needs an embedder and its vocabulary",
            expected="a projection (cls.dense.weight) and a vocab.txt",
            found="no vocab.txt" if vocabulary is None else "a network without projection",
            fix="--network=embedder, and a vocab.txt in the folder of the weights",
        )
    if form.projection == "layer_norm" and not form.is_paper:
        raise InputError(
            "sentence-transformers has no modules for an embedder of this form",
            expected="model.projection=none or linear layers, or the paper's form: "
            "model.pooling=pooler without model.normalise",
            found=f"layer_norm, pooling {form.pooling}, normalise {form.normalise}",
            fix="train with --config.model.projection=none and "
            f"--config.model.embedding={sizes.hidden}; --network=reader exports the reader alone",
        )
    bert = {name: array for name, array in names.items() if name.startswith("bert.")}
    longest = form.longest or sizes.positions
    folder.mkdir(parents=True, exist_ok=True)
    kinds = ["Transformer", "Pooling", *_write_modules(folder, names, form, sizes.hidden)]
    write_json(folder / LENGTH, {"max_seq_length": longest, "do_lower_case": False})
    prompts = {"query": _separated(form.query_prompt), "document": _separated(form.passage_prompt)}
    similarity = "cosine" if form.normalise else "dot"
    write_json(folder / PROMPTS, {"prompts": prompts, "similarity_fn_name": similarity})
    write_json(folder / MODULES, _listed(kinds))
    write_network(folder, bert, sizes, vocabulary, longest)


def _write_modules(
    folder: Path, names: dict[str, np.ndarray], form: Form, hidden: int
) -> list[str]:
    """Writes Pooling and what follows; returns the kinds of the modules after Pooling."""
    kind = "cls" if form.pooling == "pooler" else form.pooling
    flags = {f"pooling_mode_{flag}": kind == name for name, flag in _FLAGS.items()}
    pooling = {"word_embedding_dimension": hidden, **flags, "include_prompt": True}
    _module(folder / "1_Pooling", pooling, {})
    if form.is_paper:
        _dense(folder / "2_Dense", names, "bert.pooler.dense", "tanh")
        _dense(folder / "3_Dense", names, "cls.dense", "identity", _SCALE)
        norm = {f"norm.{part}": names[f"cls.LayerNorm.{part}"] for part in ("weight", "bias")}
        _module(folder / "4_LayerNorm", {"dimension": len(norm["norm.bias"])}, norm)
        return ["Dense", "Dense", "LayerNorm"]
    layers = [(f"sentence_dense.{i}", a) for i, (_, a) in enumerate(dense_layers(form.projection))]
    if form.pooling == "pooler":
        layers.insert(0, ("bert.pooler.dense", "tanh"))
    for number, (name, activation) in enumerate(layers, 2):
        _dense(folder / f"{number}_Dense", names, name, activation)
    if form.normalise:
        _module(folder / f"{len(layers) + 2}_Normalize", {}, {})
    return ["Dense"] * len(layers) + ["Normalize"] * form.normalise


def _separated(prompt: str) -> str:
    """The prompt, so that its last word is not joined to the text; ours is tokenised by itself."""
    return f"{prompt} " if prompt[-1:].isalnum() else prompt


def _dense(
    folder: Path, names: dict[str, np.ndarray], name: str, activation: str, scale: float = 1.0
) -> None:
    arrays = {f"linear.{part}": names[f"{name}.{part}"] * scale for part in ("weight", "bias")}
    size_out, size_in = arrays["linear.weight"].shape
    content = {"in_features": size_in, "out_features": size_out, "bias": True}
    content["activation_function"] = _TORCH_ACTIVATIONS[activation]
    _module(folder, content, arrays, scale)


def _module(
    folder: Path, content: dict[str, Any], arrays: dict[str, np.ndarray], scale: float = 1.0
) -> None:
    folder.mkdir()
    if arrays:
        metadata = {"format": "pt", SCALE_KEY: str(scale)}
        as_32 = {name: array.astype(np.float32) for name, array in arrays.items()}
        save_file(as_32, folder / WEIGHTS, metadata=metadata)
    write_json(folder / "config.json", content)


def _listed(kinds: list[str]) -> list[dict[str, Any]]:
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
