"""The way out of the door of `interop.load`: a BERT folder that other tools read too."""

import json
from pathlib import Path

import jax
from ml_collections import ConfigDict
from safetensors.numpy import save_file

from realm_jax.interop.load import DESCRIPTION, WEIGHTS
from realm_jax.interop.names import to_bert_names
from realm_jax.models.modules import Parameters


def save_bert(folder: Path, network: Parameters, model: ConfigDict) -> None:
    """Writes one network's BERT (and masked-LM head) under Hugging Face's names.

    Args:
      folder: is made if need be.
      network: parameters of a reader or an embedder; a reader may carry a `span_head`.
      model: `config.model` it was trained with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = to_bert_names(jax.device_get(network))
    save_file(names, folder / WEIGHTS)
    description = {
        "model_type": "bert",
        "vocab_size": len(network["bert"]["word"]),
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.mlp,
        "max_position_embeddings": model.positions,
        "type_vocab_size": 2,
        "hidden_act": "gelu_new",
        "pad_token_id": 0,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")
