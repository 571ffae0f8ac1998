"""A folder of weights with a tiny sentence encoder, to start runs from."""

from pathlib import Path
from typing import Any

import jax

from realm_jax.interop.weights import weights_of_run, write_weights
from realm_jax.models.modules import Modules
from realm_jax.text.wordpiece import WordPieces
from support.tiny_corpus import tiny_config

# Of all-MiniLM-L6-v2; E is H, the width of `tiny_config`.
LIKE_MINILM = {
    "pooling": "mean",
    "projection": "none",
    "normalise": True,
    "passage_row": "single",
    "embedding": 16,
    "temperature": 0.05,
}


def write_tiny_encoder(folder: Path, vocabulary: Path, form: dict[str, Any]) -> Path:
    """Writes an embedder of random weights, with `config.model` of `tiny_config` and this form.

    Returns:
      The folder.
    """
    config = tiny_config(**{f"model__{key}": value for key, value in form.items()})
    modules = Modules(config.model, WordPieces.load(vocabulary).size, ("embedder",))
    params = jax.device_get(modules.init(jax.random.key(5)))
    write_weights(folder, weights_of_run(params, config.model, 5, vocabulary))
    return folder
