"""Opens external weights: a Hugging Face or sentence-transformers folder, or a TF checkpoint."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from realm_jax.errors import InputError
from realm_jax.interop.distilbert_names import bert_arrays, bert_description
from realm_jax.interop.form import Form
from realm_jax.interop.lazy import LazyArray
from realm_jax.interop.lfs import require_no_lfs_pointer
from realm_jax.interop.metadata import DESCRIPTION, WEIGHTS, read_description
from realm_jax.interop.safetensors_file import read_safetensors
from realm_jax.interop.sentence_modules import MODULES, SentenceFolder
from realm_jax.interop.tensor_bundle import read_bundle
from realm_jax.interop.tensorflow_names import is_optimizer_variable, to_hugging_face
from realm_jax.interop.torch_file import read_torch
from realm_jax.interop.vocabulary_files import find_vocabulary

_TORCH = "pytorch_model.bin"
_MODEL_TYPES = ("bert", "realm", "distilbert")
_GOOGLE_CONFIG = "bert_config.json"
_CHECKPOINTS = ("*.index", "variables/*.index")


@dataclass(frozen=True)
class Source:
    """External weights whose arrays are not read yet.

    Attributes:
      where: the folder or checkpoint.
      arrays: arrays by Hugging Face names.
      description: `config.json`, or an equivalent.
      vocabulary: the `vocab.txt` or `tokenizer.json` in the folder, if any.
      original_names: Hugging Face name -> name in the file, where they differ.
      left_out: reason -> number of arrays that are not listed.
      form: of the embedder of a sentence-transformers folder; None elsewhere.
    """

    where: Path
    arrays: dict[str, LazyArray]
    description: dict[str, Any]
    vocabulary: Path | None
    original_names: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    form: Form | None = None


def open_source(path: Path, heads: int | None = None) -> Source:
    """Detects the format of `path` and opens it.

    Args:
      path: a folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (or parts of
        either with an index), a sentence-transformers folder, a folder with a TensorFlow
        checkpoint, or a checkpoint prefix.
      heads: number of attention heads, for a TensorFlow checkpoint without `bert_config.json`.

    Raises:
      InputError: there are no weights, or no description of them, or the model is not supported.
      DamageError: a file is truncated or damaged.
    """
    checkpoint = _checkpoint(path)
    if checkpoint is not None:
        return _tensorflow(checkpoint, heads)
    if (path / MODULES).is_file():
        folder = SentenceFolder(path)
        source = _hugging_face(folder.transformer)
        settings = folder.transformer / "tokenizer_config.json"
        tokenizer = read_description(settings) if settings.is_file() else {}
        form, arrays = folder.read(source.description, tokenizer)
        return replace(source, where=path, arrays=source.arrays | arrays, form=form)
    return _hugging_face(path)


def _hugging_face(path: Path) -> Source:
    files = [name for name in (WEIGHTS, _TORCH) if _parts(path, name)]
    if not files:
        raise InputError(
            "no weights here",
            where=path,
            expected=f"a folder with {DESCRIPTION} and {WEIGHTS} or {_TORCH}, "
            "or a TensorFlow checkpoint (NAME.index, NAME.data-*)",
            found="no such folder" if not path.exists() else "none of these files",
        )
    description = read_description(path / DESCRIPTION)
    kind = description.get("model_type", "bert")
    if kind not in _MODEL_TYPES:
        raise InputError(
            "unsupported model type",
            where=path,
            expected=" or ".join(_MODEL_TYPES),
            found=kind,
            fix="use an encoder of BERT's architecture, such as "
            "sentence-transformers/all-MiniLM-L6-v2 or BAAI/bge-small-en-v1.5",
        )
    read = read_safetensors if files[0] == WEIGHTS else read_torch
    arrays: dict[str, LazyArray] = {}
    for part in _parts(path, files[0]):
        require_no_lfs_pointer(part)
        arrays |= read(part)
    if kind == "distilbert":
        description = bert_description(description)
        arrays = bert_arrays(arrays, int(description.get("hidden_size", 768)))
    return Source(path, arrays, description, find_vocabulary(path))


def _parts(folder: Path, name: str) -> list[Path]:
    """The file of that name, or the files that its index lists."""
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        return []
    listed = set(read_description(index).get("weight_map", {}).values())
    return [folder / Path(part).name for part in sorted(listed)]


def _checkpoint(path: Path) -> Path | None:
    """The prefix of the TensorFlow checkpoint at or in `path`; None if there is none."""
    if path.is_dir():
        found = sorted(index for pattern in _CHECKPOINTS for index in path.glob(pattern))
        if len(found) > 1:
            raise InputError(
                "more than one checkpoint in the folder",
                where=path,
                expected="the path of one checkpoint",
                found=", ".join(index.stem for index in found),
            )
        return found[0].with_suffix("") if found else None
    prefix = path.with_suffix("") if path.suffix == ".index" else path
    return prefix if prefix.with_name(f"{prefix.name}.index").is_file() else None


def _tensorflow(prefix: Path, heads: int | None) -> Source:
    variables = read_bundle(prefix)
    candidates = (folder / _GOOGLE_CONFIG for folder in (prefix.parent, prefix.parent.parent))
    found = next((path for path in candidates if path.is_file()), None)
    description = read_description(found) if found else {}
    if heads is not None:
        description["num_attention_heads"] = heads
    # In Google's code "gelu" is the tanh approximation.
    if description.get("hidden_act", "gelu") == "gelu":
        description["hidden_act"] = "gelu_new"
    kept = {name: array for name, array in variables.items() if not is_optimizer_variable(name)}
    arrays, original_names = {}, {}
    for name, array in kept.items():
        ours, arrays_ours = to_hugging_face(name, array)
        arrays[ours], original_names[ours] = arrays_ours, name
    slots = len(variables) - len(kept)
    return Source(
        prefix,
        arrays,
        description,
        find_vocabulary(prefix.parent) or find_vocabulary(prefix.parent.parent),
        original_names,
        {"optimizer state": slots} if slots else {},
    )
