"""Array names and settings of Hugging Face's DistilBERT, as those of BERT.

DistilBERT (Sanh et al., 2019) is BERT without segment embeddings, which are zeros here.
"""

import re
from typing import Any

import numpy as np

from realm_jax.interop.lazy import LazyArray

# their setting -> BERT's
_SETTINGS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
}
_PARTS = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "sa_layer_norm": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "output_layer_norm": "output.LayerNorm",
}
_HEAD = {
    "vocab_transform": "cls.predictions.transform.dense",
    "vocab_layer_norm": "cls.predictions.transform.LayerNorm",
    "vocab_projector": "cls.predictions.decoder",
}
_LAYER = re.compile(r"(?:distilbert\.)?transformer\.layer\.(\d+)\.(.+)\.(weight|bias)")
_EMBEDDINGS = re.compile(r"(?:distilbert\.)?(embeddings\..+)")


def bert_description(description: dict[str, Any]) -> dict[str, Any]:
    """A DistilBERT `config.json` as one of BERT."""
    renamed = {_SETTINGS.get(key, key): value for key, value in description.items()}
    return renamed | {"model_type": "bert", "type_vocab_size": 2, "architectures": []}


def bert_arrays(arrays: dict[str, LazyArray], hidden: int) -> dict[str, LazyArray]:
    """Arrays of DistilBERT by the names of BERT, with segment embeddings of zeros."""
    zeros = LazyArray((2, hidden), lambda: np.zeros((2, hidden), np.float32))
    found = {"bert.embeddings.token_type_embeddings.weight": zeros}
    for name, array in arrays.items():
        found[_bert_name(name)] = array
    return found


def _bert_name(name: str) -> str:
    layer, embeddings = _LAYER.fullmatch(name), _EMBEDDINGS.fullmatch(name)
    if layer and layer[2] in _PARTS:
        return f"bert.encoder.layer.{layer[1]}.{_PARTS[layer[2]]}.{layer[3]}"
    if embeddings:
        return f"bert.{embeddings[1]}"
    module, _, part = name.rpartition(".")
    return f"{_HEAD[module]}.{part}" if module in _HEAD else name
