"""Hugging Face's BERT names and ours, both ways, from one table."""

from typing import Any

import numpy as np

from realm_jax.errors import MismatchError

# What each network takes from a BERT; the embedder's own `norm` is no part of one.
NETWORK_PARTS = {
    "embedder": ("bert", "pooler"),
    "reader": ("bert", "transform", "norm", "bias"),
    "span_head": ("ends", "norm", "score"),
    "tagger": ("bert",),
}
SPAN_HEAD = "span_head"  # where the tree of a reader carries that network

_ANCHOR = "embeddings.word_embeddings.weight"  # every BERT has it, whatever its prefix
_HEADS = ("cls.predictions.", "qa_outputs.")
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
    (SPAN_HEAD, "ends", "kernel"): ("qa_outputs.dense_intermediate.weight", "transpose"),
    (SPAN_HEAD, "ends", "bias"): ("qa_outputs.dense_intermediate.bias", "same"),
    (SPAN_HEAD, "norm", "scale"): ("qa_outputs.layer_normalization.weight", "same"),
    (SPAN_HEAD, "norm", "bias"): ("qa_outputs.layer_normalization.bias", "same"),
    (SPAN_HEAD, "score", "kernel"): ("qa_outputs.dense_output.weight", "transpose"),
    (SPAN_HEAD, "score", "bias"): ("qa_outputs.dense_output.bias", "same"),
}


def from_bert_names(theirs: dict[str, np.ndarray], heads: int) -> dict[str, Any]:
    """Our tree of what a BERT state dict holds; names it does not know are left out.

    A span head (REALM's reader has one) stands under `span_head`.

    Raises:
      MismatchError: no BERT among the names, or a layer that lacks a part.
    """
    theirs = _unwrapped(theirs)
    tree: dict[str, Any] = {}
    for path, (name, change) in _BERT_NAMES.items():
        if name in theirs:
            _put(tree, path, _ours(theirs[name], change, heads))
    depth = 0
    while f"bert.{_LAYER.format(i=depth)}output.dense.bias" in theirs:
        depth += 1
    for ours, (name, change) in _LAYER_NAMES.items():
        layers = [_found(theirs, f"bert.{_LAYER.format(i=i)}{name}") for i in range(depth)]
        if layers:
            stacked = np.stack([_ours(layer, change, heads) for layer in layers])
            _put(tree, ("bert", "layers", ours), stacked)
    return tree


def to_bert_names(tree: dict[str, Any]) -> dict[str, np.ndarray]:
    """The inverse: a BERT state dict of what a reader or an embedder has of it.

    A reader's tree may carry a span head under `span_head`.
    """
    theirs = {}
    no_part_of_it = () if "transform" in tree else ("norm",)  # the embedder's own
    for path, (name, change) in _BERT_NAMES.items():
        leaf = _get(tree, path)
        if leaf is not None and path[0] not in no_part_of_it:
            theirs[name] = _theirs(np.asarray(leaf), change)
    for ours, (name, change) in _LAYER_NAMES.items():
        for i, layer in enumerate(np.asarray(tree["bert"]["layers"][ours])):
            theirs[f"bert.{_LAYER.format(i=i)}{name}"] = _theirs(layer, change)
    return theirs


def _unwrapped(theirs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same under BERT's present names: prefixes of a wrapping model cut, old norms renamed."""
    anchors = [name for name in theirs if name.endswith(_ANCHOR)]
    if not anchors:
        raise MismatchError(
            "the weights hold no BERT",
            expected=f"a name that ends in {_ANCHOR}",
            found=", ".join(sorted(theirs)[:5]) or "no array",
        )
    prefix = anchors[0].removesuffix(_ANCHOR)
    return {_present_name(name, prefix): array for name, array in theirs.items()}


def _present_name(name: str, prefix: str) -> str:
    head = next((head for head in _HEADS if head in name), None)
    if head is not None:
        name = name[name.index(head) :]
    elif name.startswith(prefix):
        name = f"bert.{name.removeprefix(prefix)}"
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _found(theirs: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in theirs:
        raise MismatchError("the weights lack a part of BERT", expected=name, found="nothing")
    return theirs[name]


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
