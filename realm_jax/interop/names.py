"""Hugging Face's BERT names and ours, both ways, from one table."""

from typing import Any

import numpy as np

_LAYER = "encoder.layer.{i}."
# ours under bert.layers -> (theirs, what their array needs to become ours)
_LAYER_NAMES = {
    "query_kernel": ("attention.self.query.weight", "project"),
    "query_bias": ("attention.self.query.bias", "split"),
    "key_kernel": ("attention.self.key.weight", "project"),
    "key_bias": ("attention.self.key.bias", "split"),
    "value_kernel": ("attention.self.value.weight", "project"),
    "value_bias": ("attention.self.value.bias", "split"),
    "output_kernel": ("attention.output.dense.weight", "join"),
    "output_bias": ("attention.output.dense.bias", "same"),
    "attention_norm_scale": ("attention.output.LayerNorm.weight", "same"),
    "attention_norm_bias": ("attention.output.LayerNorm.bias", "same"),
    "up_kernel": ("intermediate.dense.weight", "transpose"),
    "up_bias": ("intermediate.dense.bias", "same"),
    "down_kernel": ("output.dense.weight", "transpose"),
    "down_bias": ("output.dense.bias", "same"),
    "output_norm_scale": ("output.LayerNorm.weight", "same"),
    "output_norm_bias": ("output.LayerNorm.bias", "same"),
}
_BERT_NAMES = {
    ("bert", "word"): ("bert.embeddings.word_embeddings.weight", "same"),
    ("bert", "position"): ("bert.embeddings.position_embeddings.weight", "same"),
    ("bert", "segment"): ("bert.embeddings.token_type_embeddings.weight", "same"),
    ("bert", "norm", "scale"): ("bert.embeddings.LayerNorm.weight", "same"),
    ("bert", "norm", "bias"): ("bert.embeddings.LayerNorm.bias", "same"),
    ("pooler", "kernel"): ("bert.pooler.dense.weight", "transpose"),
    ("pooler", "bias"): ("bert.pooler.dense.bias", "same"),
    ("transform", "kernel"): ("cls.predictions.transform.dense.weight", "transpose"),
    ("transform", "bias"): ("cls.predictions.transform.dense.bias", "same"),
    ("norm", "scale"): ("cls.predictions.transform.LayerNorm.weight", "same"),
    ("norm", "bias"): ("cls.predictions.transform.LayerNorm.bias", "same"),
    ("bias",): ("cls.predictions.bias", "same"),
}


def from_bert_names(theirs: dict[str, np.ndarray], heads: int) -> dict[str, Any]:
    """Our tree of what a BERT state dict holds; names it does not know are left out."""
    tree: dict[str, Any] = {}
    for path, (name, change) in _BERT_NAMES.items():
        if name in theirs:
            _put(tree, path, _ours(theirs[name], change, heads))
    depth = 0
    while f"bert.{_LAYER.format(i=depth)}output.dense.bias" in theirs:
        depth += 1
    for ours, (name, change) in _LAYER_NAMES.items():
        layers = [theirs[f"bert.{_LAYER.format(i=i)}{name}"] for i in range(depth)]
        if layers:
            stacked = np.stack([_ours(layer, change, heads) for layer in layers])
            _put(tree, ("bert", "layers", ours), stacked)
    return tree


def to_bert_names(tree: dict[str, Any]) -> dict[str, np.ndarray]:
    """The inverse: a BERT state dict of a reader (or embedder) tree."""
    theirs = {}
    for path, (name, change) in _BERT_NAMES.items():
        leaf = _get(tree, path)
        if leaf is not None:
            theirs[name] = _theirs(np.asarray(leaf), change)
    for ours, (name, change) in _LAYER_NAMES.items():
        for i, layer in enumerate(np.asarray(tree["bert"]["layers"][ours])):
            theirs[f"bert.{_LAYER.format(i=i)}{name}"] = _theirs(layer, change)
    return theirs


def _ours(array: np.ndarray, change: str, heads: int) -> np.ndarray:
    if change == "transpose":
        return array.T
    if change == "split":
        return array.reshape(heads, -1)
    if change == "project":
        return array.T.reshape(array.shape[1], heads, -1)
    if change == "join":
        return array.T.reshape(heads, -1, array.shape[0])
    return array


def _theirs(array: np.ndarray, change: str) -> np.ndarray:
    if change == "transpose":
        array = array.T
    elif change == "split":
        array = array.reshape(-1)
    elif change == "project":
        array = array.reshape(array.shape[0], -1).T
    elif change == "join":
        array = array.reshape(-1, array.shape[-1]).T
    return np.ascontiguousarray(array)


def _put(tree: dict[str, Any], path: tuple[str, ...], leaf: np.ndarray) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf


def _get(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
    for name in path:
        if name not in tree:
            return None
        tree = tree[name]
    return tree
