"""Where other people's weights lie: a Hugging Face folder or a TensorFlow checkpoint."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from realm_jax.errors import InputError
from realm_jax.interop.lazy import Lazy
from realm_jax.interop.metadata import DESCRIPTION, VOCABULARY, WEIGHTS, read_description
from realm_jax.interop.safetensors_file import read_safetensors
from realm_jax.interop.sentence_layout import MODULES, read_sentence_transformers
from realm_jax.interop.tensor_bundle import read_bundle
from realm_jax.interop.tensorflow_names import of_the_optimiser, renamed
from realm_jax.interop.torch_file import read_torch

_TORCH = "pytorch_model.bin"
_GOOGLES = "bert_config.json"
_CHECKPOINTS = ("*.index", "variables/*.index")


@dataclass(frozen=True)
class Source:
    """Arrays of others, not read yet.

    Attributes:
      where: the folder or checkpoint.
      arrays: by names of Hugging Face.
      description: `config.json`, or what stands for it.
      vocabulary: the `vocab.txt` beside them, if there is one.
      first_names: names of `arrays` that came under another name.
      left_out: reason to number of arrays not even listed.
    """

    where: Path
    arrays: dict[str, Lazy]
    description: dict[str, Any]
    vocabulary: Path | None
    first_names: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


def open_source(path: Path, heads: int | None = None) -> Source:
    """Finds out what `path` is and opens it.

    Args:
      path: a folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (or parts of
        either with their index), a folder with a TensorFlow checkpoint, or such a checkpoint.
      heads: attention heads, for a TensorFlow checkpoint without a `bert_config.json`.

    Raises:
      InputError: no weights there, or no description of them.
      DamageError: a file that is cut short or damaged.
    """
    checkpoint = _checkpoint(path)
    if checkpoint is not None:
        return _tensorflow(checkpoint, heads)
    files = [name for name in (WEIGHTS, _TORCH) if _parts(path, name)]
    if not files:
        raise InputError(
            "no weights here",
            where=path,
            expected=f"a folder with {DESCRIPTION} and {WEIGHTS} or {_TORCH}, "
            "or a TensorFlow checkpoint (NAME.index, NAME.data-*)",
            found="no such folder" if not path.exists() else "none of these",
        )
    description = read_description(path / DESCRIPTION)
    kind = description.get("model_type", "bert")
    if kind not in ("bert", "realm"):
        raise InputError(
            "a model of another kind", where=path, expected="bert or realm", found=kind
        )
    read = read_safetensors if files[0] == WEIGHTS else read_torch
    arrays: dict[str, Lazy] = {}
    for part in _parts(path, files[0]):
        arrays |= read(part)
    if (path / MODULES).is_file():
        arrays |= read_sentence_transformers(path)
    return Source(path, arrays, description, _vocabulary(path))


def _parts(folder: Path, name: str) -> list[Path]:
    """The one file of that name, or those that its index lists."""
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        return []
    listed = set(read_description(index).get("weight_map", {}).values())
    return [folder / Path(part).name for part in sorted(listed)]


def _checkpoint(path: Path) -> Path | None:
    """The prefix of the TensorFlow checkpoint that `path` is or holds."""
    if path.is_dir():
        found = sorted(index for pattern in _CHECKPOINTS for index in path.glob(pattern))
        if len(found) > 1:
            raise InputError(
                "more than one checkpoint here",
                where=path,
                expected="the name of one of them",
                found=", ".join(index.stem for index in found),
            )
        return found[0].with_suffix("") if found else None
    prefix = path.with_suffix("") if path.suffix == ".index" else path
    return prefix if prefix.with_name(f"{prefix.name}.index").is_file() else None


def _tensorflow(prefix: Path, heads: int | None) -> Source:
    variables = read_bundle(prefix)
    told = next(
        (p / _GOOGLES for p in (prefix.parent, prefix.parent.parent) if (p / _GOOGLES).is_file()),
        None,
    )
    description = read_description(told) if told else {}
    if heads is not None:
        description["num_attention_heads"] = heads
    # What Google's code calls gelu is the tanh form.
    if description.get("hidden_act", "gelu") == "gelu":
        description["hidden_act"] = "gelu_new"
    kept = {name: array for name, array in variables.items() if not of_the_optimiser(name)}
    arrays, first_names = {}, {}
    for name, array in kept.items():
        ours, arrays_ours = renamed(name, array)
        arrays[ours], first_names[ours] = arrays_ours, name
    slots = len(variables) - len(kept)
    return Source(
        prefix,
        arrays,
        description,
        _vocabulary(prefix.parent) or _vocabulary(prefix.parent.parent),
        first_names,
        {"of the optimiser": slots} if slots else {},
    )


def _vocabulary(folder: Path) -> Path | None:
    places = (folder / VOCABULARY, folder / "assets" / VOCABULARY)
    return next((path for path in places if path.is_file()), None)
