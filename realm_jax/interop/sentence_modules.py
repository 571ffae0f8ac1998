"""Reads the modules of a sentence-transformers folder: the form of its embedder, and its arrays."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from realm_jax.errors import InputError
from realm_jax.interop.form import PAPER, Form, stored_form
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.lfs import require_no_lfs_pointer
from realm_jax.interop.safetensors_file import open_safetensors, read_safetensors
from realm_jax.interop.torch_file import read_torch

MODULES, PROMPTS, LENGTH = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
SCALE_KEY = "realm_scale"  # in the metadata of a layer that is written times a power of two
_WEIGHTS, _TORCH = "model.safetensors", "pytorch_model.bin"
_POOLING = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
_POOLING["mean_sqrt_len"] = "mean_sqrt_len_tokens"
_ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu"}
# Of the scores of unit-length vectors: sentence-transformers trains with a scale of 20.
_TEMPERATURE = 0.05
_QUERY_NAMES, _PASSAGE_NAMES = ("query",), ("document", "passage", "corpus")
_SUPPORTED = "Transformer, Pooling, Dense and Normalize"
Arrays = dict[str, LazyArray]


class SentenceFolder:
    """A sentence-transformers folder.

    Attributes:
      path: the folder.
      transformer: the folder of its transformer.
    """

    def __init__(self, path: Path):
        self.path = path
        listed = _json(path / MODULES, list)
        if not all(isinstance(entry, dict) for entry in listed):
            self._refuse("a list of modules with type and path", str(listed)[:60])
        self._modules = [(_last(entry, "type"), self._folder(entry)) for entry in listed]
        kinds = [kind for kind, _ in self._modules]
        if kinds[:2] != ["Transformer", "Pooling"]:
            self._refuse("Transformer and Pooling first", ", ".join(kinds) or "no module")
        self.transformer = self._modules[0][1]

    def _folder(self, entry: dict[str, Any]) -> Path:
        """The folder of a module; inside this folder."""
        folder = self.path / str(entry.get("path", ""))
        if not folder.resolve().is_relative_to(self.path.resolve()):
            self._refuse("modules inside the folder", str(entry.get("path")))
        return folder

    def _refuse(self, expected: str, found: str, file: str = MODULES) -> NoReturn:
        raise InputError(
            "the sentence-transformers model has a form that is not supported",
            where=self.path / file,
            expected=expected,
            found=found,
            fix="use a model of these modules, such as sentence-transformers/all-MiniLM-L6-v2, or "
            "delete modules.json to import the transformer alone",
        )

    def read(self, description: dict[str, Any], tokenizer: dict[str, Any]) -> tuple[Form, Arrays]:
        """The form of the embedder, and its arrays behind the transformer.

        Args:
          description: `config.json` of the transformer.
          tokenizer: its `tokenizer_config.json`.

        Raises:
          InputError: a module or setting is not supported, or is not readable.
          DamageError: a file of the modules is truncated or damaged.
        """
        kinds = [kind for kind, _ in self._modules[2:]]
        if "LayerNorm" in kinds:
            return self._paper(kinds, description)
        similarity, unit = self._similarity(), kinds[-1:] == ["Normalize"]
        normalise = unit or similarity == "cosine"
        dense = kinds[:-1] if unit else kinds
        for kind in dense:
            if kind != "Dense":
                self._refuse(f"{_SUPPORTED}, with Normalize last", kind)
        layers: list[str] = []
        arrays: Arrays = {}
        for number, (_, folder) in enumerate(self._modules[2 : 2 + len(dense)]):
            width, found = self._dense(folder, f"sentence_dense.{number}")
            layers.append(width)
            arrays |= found
        query, passage = self._prompts()
        keys: dict[str, Any] = {
            "pooling": self._pooling(query + passage),
            "projection": " ".join(layers) or "none",
            "normalise": normalise,
            "passage_row": "single",
            "temperature": _TEMPERATURE if normalise else PAPER.temperature,
            "longest": self._longest(description, tokenizer),
        }
        prompts = {"query_prompt": query, "passage_prompt": passage}
        return Form(**(keys | stored_form(description) | prompts)), arrays

    def _paper(self, kinds: list[str], description: dict[str, Any]) -> tuple[Form, Arrays]:
        """The paper's form, as `sentence_layout` writes it; its pooler is in the transformer."""
        if kinds != ["Dense", "Dense", "LayerNorm"]:
            self._refuse(f"{_SUPPORTED}, or the modules that `realm export` writes", "LayerNorm")
        _, projection = self._dense(self._modules[3][1], "cls.dense")
        if self._similarity() == "cosine":
            self._refuse("similarity_fn_name dot", "cosine, with LayerNorm last", PROMPTS)
        norm = _layer(self._modules[4][1], "norm", "cls.LayerNorm")
        return Form(**stored_form(description)), projection | norm

    def _pooling(self, prompts: str) -> str:
        path = self._modules[1][1] / "config.json"
        content = _json(path, dict)
        named = content.get("pooling_mode")
        modes = [named] if isinstance(named, str) else named
        if modes is None:
            modes = [
                key.removeprefix("pooling_mode_")
                for key, value in content.items()
                if key.startswith("pooling_mode_") and value
            ]
        ours = {theirs: kind for kind, theirs in _POOLING.items()}
        modes = [ours.get(mode, mode) for mode in modes]
        if len(modes) != 1 or modes[0] not in _POOLING:
            self._refuse(f"one pooling of {', '.join(_POOLING)}", " and ".join(modes) or "none")
        if prompts and not content.get("include_prompt", True):
            self._refuse("pooling that includes the prompt", "include_prompt false")
        return str(modes[0])

    def _dense(self, folder: Path, name: str) -> tuple[str, Arrays]:
        """`WIDTH:ACTIVATION`, and the arrays of a linear layer."""
        content = _json(folder / "config.json", dict)
        activation = str(content.get("activation_function", "Tanh")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            self._refuse(f"an activation of {', '.join(_ACTIVATIONS)}", activation)
        arrays = _layer(folder, "linear", name)
        width, ours = arrays[f"{name}.weight"].shape[0], _ACTIVATIONS[activation]
        return f"{width}" if ours == "identity" else f"{width}:{ours}", arrays

    def _prompts(self) -> tuple[str, str]:
        """The prompts of queries and of passages; the default prompt where a kind has none."""
        content = self._settings()
        prompts = content.get("prompts") or {}
        default = prompts.get(content.get("default_prompt_name"), "")
        query, passage = (
            next((prompts[name] for name in names if prompts.get(name)), default)
            for names in (_QUERY_NAMES, _PASSAGE_NAMES)
        )
        for prompt in (query, passage):
            if str(prompt)[-1:].isalnum():  # its last word and the text's first would be one word
                self._refuse("prompts that end with a blank or a punctuation mark", repr(prompt))
        return str(query), str(passage)

    def _similarity(self) -> str:
        """The stated similarity of vectors: `cosine`, or `dot`, an inner product; "" if none is."""
        stated = self._settings().get("similarity_fn_name") or ""
        if stated not in ("cosine", "dot", ""):
            self._refuse("similarity_fn_name cosine or dot", str(stated), PROMPTS)
        return str(stated)

    def _settings(self) -> dict[str, Any]:
        path = self.path / PROMPTS
        return _json(path, dict) if path.is_file() else {}

    def _longest(self, description: dict[str, Any], tokenizer: dict[str, Any]) -> int:
        path = self.transformer / LENGTH
        stated = _json(path, dict).get("max_seq_length") if path.is_file() else None
        lengths = [stated or tokenizer.get("model_max_length")]
        lengths.append(description.get("max_position_embeddings"))
        return int(min((length for length in lengths if length), default=0))


def _layer(folder: Path, inner: str, name: str) -> Arrays:
    """Weight and bias of a module; a layer without a bias gets one of zeros."""
    safe, scale = folder / _WEIGHTS, np.float32(1)
    for path in (safe, folder / _TORCH):
        require_no_lfs_pointer(path)
    if safe.is_file():
        found = read_safetensors(safe)
        scale = np.float32((open_safetensors(safe).metadata() or {}).get(SCALE_KEY, "1"))
    else:
        found = read_torch(folder / _TORCH) if (folder / _TORCH).is_file() else {}
    if f"{inner}.weight" not in found:
        raise InputError(
            "a module of the sentence-transformers folder has no weights",
            where=safe,
            expected=f"{inner}.weight in this file or in {_TORCH}",
            found=", ".join(sorted(found)) or "no such file",
        )
    weight = found[f"{inner}.weight"]
    zeros = LazyArray(weight.shape[:1], lambda: np.zeros(weight.shape[:1], np.float32))
    parts = {"weight": weight, "bias": found.get(f"{inner}.bias", zeros)}
    return {f"{name}.{part}": _divided(array, scale) for part, array in parts.items()}


def _divided(array: LazyArray, scale: np.float32) -> LazyArray:
    def read(of: Callable[[], np.ndarray] = array.read) -> np.ndarray:
        return of().astype(np.float32) / scale

    return LazyArray(array.shape, read)


def _last(entry: Any, key: str) -> str:
    return str(entry.get(key, "")).rpartition(".")[2] if isinstance(entry, dict) else ""


def _json(path: Path, kind: type) -> Any:
    require_no_lfs_pointer(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(
            "a file of the sentence-transformers folder is not readable", where=path, found=error
        ) from error
    if not isinstance(found, kind):
        raise InputError(
            "a file of the sentence-transformers folder has another content",
            where=path,
            expected=f"a JSON {'list' if kind is list else 'object'}",
            found=str(found)[:60],
        )
    return found
