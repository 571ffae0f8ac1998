"""The embedder as a sentence-transformers model: Transformer, Pooling, Dense, Dense, LayerNorm.

The LayerNorm of sentence-transformers has eps 1e-5, ours 1e-12. Layer normalisation is invariant
to a scale of its input. Therefore the projection is written times 2^12, which reduces the effect
of eps by 2^24. A power of two loses no precision, and reading divides by it.
"""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from realm_jax.errors import InputError
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.metadata import WEIGHTS, Sizes
from realm_jax.interop.safetensors_file import open_safetensors
from realm_jax.interop.save import write_json, write_network

MODULES = "modules.json"
_SCALE = 4096.0
_SCALE_KEY = "realm_scale"  # in the metadata of the scaled file
_POOLING, _POOLER, _PROJECTION, _NORM = "1_Pooling", "2_Dense", "3_Dense", "4_LayerNorm"
_TYPES = ("Transformer", "Pooling", "Dense", "Dense", "LayerNorm")


def write_sentence_transformers(
    folder: Path, names: dict[str, np.ndarray], sizes: Sizes, vocabulary: Path | None
) -> None:
    """Writes one tower; `SentenceTransformer(folder).encode` returns the vectors of `Model.embed`.

    A passage is encoded as the pair (title, body), a query as a string.

    Args:
      folder: new or empty.
      names: arrays of an embedder by canonical name.
      sizes: sizes of its model.
      vocabulary: its `vocab.txt`.

    Raises:
      InputError: there is no vocabulary, or the network is not an embedder.
    """
    if "cls.dense.weight" not in names or vocabulary is None:
        raise InputError(
            "sentence-transformers needs an embedder and its vocabulary",
            expected="a projection (cls.dense.weight) and a vocab.txt",
            found="no vocab.txt" if vocabulary is None else "a network without projection",
            fix="--network=embedder, and a vocab.txt in the folder of the weights",
        )
    bert = {name: array for name, array in names.items() if name.startswith("bert.")}
    write_network(folder, bert, sizes, vocabulary)
    longest = {"max_seq_length": sizes.positions, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", longest)
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot"})
    pooling = {"word_embedding_dimension": sizes.hidden, "pooling_mode_cls_token": True}
    pooling |= {"pooling_mode_mean_tokens": False, "include_prompt": True}
    _module(folder / _POOLING, pooling, {})
    _dense(folder / _POOLER, names, "bert.pooler.dense", "torch.nn.modules.activation.Tanh", 1.0)
    _dense(folder / _PROJECTION, names, "cls.dense", "torch.nn.modules.linear.Identity", _SCALE)
    norm = {f"norm.{part}": names[f"cls.LayerNorm.{part}"] for part in ("weight", "bias")}
    _module(folder / _NORM, {"dimension": len(norm["norm.bias"])}, norm)
    write_json(folder / MODULES, _modules())


def read_sentence_transformers(folder: Path) -> dict[str, LazyArray]:
    """Reads the embedder's projection: `cls.dense.*` and `cls.LayerNorm.*`.

    Raises:
      InputError: the folder has other modules than `realm export` writes.
      DamageError: a file of the modules is truncated or damaged.
    """
    found = {}
    for module, inner, name in ((_PROJECTION, "linear", "dense"), (_NORM, "norm", "LayerNorm")):
        path = folder / module / WEIGHTS
        file = open_safetensors(path) if path.is_file() else None
        if file is None or not {f"{inner}.weight", f"{inner}.bias"} <= set(file.keys()):
            raise InputError(
                "the sentence-transformers folder is not an exported embedder",
                where=path,
                expected="the five modules that `realm export` writes",
            )
        scale = np.float32((file.metadata() or {}).get(_SCALE_KEY, "1"))
        for part in ("weight", "bias"):
            array = file.get_tensor(f"{inner}.{part}") / scale
            found[f"cls.{name}.{part}"] = LazyArray(array.shape, array.copy)
    return found


def _dense(
    folder: Path, names: dict[str, np.ndarray], name: str, activation: str, scale: float
) -> None:
    arrays = {f"linear.{part}": names[f"{name}.{part}"] * scale for part in ("weight", "bias")}
    size_out, size_in = arrays["linear.weight"].shape
    content = {"in_features": size_in, "out_features": size_out, "bias": True}
    _module(folder, content | {"activation_function": activation}, arrays, scale)


def _module(
    folder: Path, content: dict[str, Any], arrays: dict[str, np.ndarray], scale: float = 1.0
) -> None:
    folder.mkdir()
    if arrays:
        metadata = {"format": "pt", _SCALE_KEY: str(scale)}
        as_32 = {name: array.astype(np.float32) for name, array in arrays.items()}
        save_file(as_32, folder / WEIGHTS, metadata=metadata)
    write_json(folder / "config.json", content)


def _modules() -> list[dict[str, Any]]:
    paths = ("", _POOLING, _POOLER, _PROJECTION, _NORM)
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, _TYPES, strict=True))
    ]
