"""Writes weights: one Hugging Face folder per network."""

import json
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict
from safetensors.numpy import save_file

from realm_jax.interop.metadata import (
    DESCRIPTION,
    VOCABULARY,
    WEIGHTS,
    Sizes,
    sizes_of,
    to_description,
)
from realm_jax.interop.names import to_bert_names
from realm_jax.interop.vocabulary_files import read_pieces
from realm_jax.models.modules import Parameters

_TOKENIZER = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}


def write_network(
    folder: Path,
    names: dict[str, np.ndarray],
    sizes: Sizes,
    vocabulary: Path | None,
    longest: int | None = None,
) -> None:
    """Writes one network; `config.json` is written last, so an incomplete folder has none.

    Args:
      folder: created if needed.
      names: arrays by canonical name.
      sizes: sizes and form of its model.
      vocabulary: its `vocab.txt` or `tokenizer.json`, if it has one.
      longest: word pieces at which its tokenizer cuts rows; None: it does not say.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if vocabulary is not None:
        pieces = "".join(f"{piece}\n" for piece in read_pieces(vocabulary))
        (folder / VOCABULARY).write_text(pieces, encoding="utf-8")
        cut = {} if longest is None else {"model_max_length": longest}
        write_json(folder / "tokenizer_config.json", _TOKENIZER | cut)
    save_file(names, folder / WEIGHTS, metadata={"format": "pt"})
    masked_lm = "cls.predictions.bias" in names
    description = to_description(sizes, "BertForMaskedLM" if masked_lm else "BertModel")
    write_json(folder / DESCRIPTION, description)


def write_json(path: Path, content: object) -> None:
    """Writes indented JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n")


def save_bert(folder: Path, network: Parameters, model: ConfigDict, widest: int = 10) -> None:
    """Writes one of our networks.

    Args:
      folder: created if needed; existing files are overwritten.
      network: parameters of a reader or an embedder; a reader may contain a `span_head`.
      model: `config.model` of the run that trained it.
      widest: `config.lengths.answer`.
    """
    names = to_bert_names(jax.device_get(network))
    sizes = sizes_of(model, len(network["bert"]["word"]), widest)
    write_network(folder, names, sizes, None)
