"""Maps Hugging Face's array names of BERT and REALM to our parameter trees, and back.

Names are canonical here: `bert.*`, `cls.predictions.*` (masked LM), `cls.dense.*` and
`cls.LayerNorm.*` (the embedder's projection), `sentence_dense.N.*` (linear layers of an embedder of
another form), `qa_outputs.*` (spans). `realm_jax.interop.detect`
converts the names of each model class to canonical names.
"""

from typing import Any

import numpy as np

from realm_jax.errors import MismatchError

# network -> its submodule -> part, as in `_BERT_NAMES`
NETWORK_PARTS: dict[str, dict[str, str]] = {
    "embedder": {
        "bert": "bert",
        "pooler": "pooler",
        "projection": "projection",
        "norm": "projection_norm",
        **{f"dense_{i}": f"dense_{i}" for i in range(8)},
    },
    "reader": {"bert": "bert", "transform": "transform", "norm": "norm", "bias": "bias"},
    "span_head": {"ends": "ends", "norm": "span_norm", "score": "score"},
    "tagger": {"bert": "bert"},
}
SPAN_HEAD = "span_head"  # key of the span head in the tree of a reader

WORDS = "bert.embeddings.word_embeddings.weight"
_LAYER = "encoder.layer.{i}."
# our name under bert.layers -> (their name, conversion of their array to ours)
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
_BERT_NAMES: dict[tuple[str, ...], tuple[str, str]] = {
    ("bert", "word"): (WORDS, "same"),
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
    ("projection", "kernel"): ("cls.dense.weight", "transpose"),
    ("projection", "bias"): ("cls.dense.bias", "same"),
    ("projection_norm", "scale"): ("cls.LayerNorm.weight", "same"),
    ("projection_norm", "bias"): ("cls.LayerNorm.bias", "same"),
    **{
        (f"dense_{i}", ours): (f"sentence_dense.{i}.{theirs}", change)
        for i in range(8)
        for ours, theirs, change in (("kernel", "weight", "transpose"), ("bias", "bias", "same"))
    },
    ("ends", "kernel"): ("qa_outputs.dense_intermediate.weight", "transpose"),
    ("ends", "bias"): ("qa_outputs.dense_intermediate.bias", "same"),
    ("span_norm", "scale"): ("qa_outputs.layer_normalization.weight", "same"),
    ("span_norm", "bias"): ("qa_outputs.layer_normalization.bias", "same"),
    ("score", "kernel"): ("qa_outputs.dense_output.weight", "transpose"),
    ("score", "bias"): ("qa_outputs.dense_output.bias", "same"),
}


def names_of(part: str, layers: int) -> list[str]:
    """Canonical names of all arrays of a part of `NETWORK_PARTS`, for a BERT with `layers`."""
    names = [name for path, (name, _) in _BERT_NAMES.items() if path[0] == part]
    if part == "bert":
        inner = [name for name, _ in _LAYER_NAMES.values()]
        names += [f"bert.{_LAYER.format(i=i)}{name}" for i in range(layers) for name in inner]
    return names


def from_bert_names(theirs: dict[str, np.ndarray], heads: int) -> dict[str, Any]:
    """Converts arrays by canonical name to our trees, for all parts that are present.

    Raises:
      MismatchError: a layer lacks an array, or its shape differs from the first layer's.
    """
    tree: dict[str, Any] = {}
    for path, (name, change) in _BERT_NAMES.items():
        if name in theirs:
            _set(tree, path, _ours(name, theirs[name], change, heads))
    depth = 0
    while any(name.startswith(f"bert.{_LAYER.format(i=depth)}") for name in theirs):
        depth += 1
    for ours, (name, change) in _LAYER_NAMES.items():
        layers = [_layer(theirs, i, name, change, heads) for i in range(depth)]
        if layers:
            _set(tree, ("bert", "layers", ours), np.stack(layers))
    return tree


def network_of(parts: dict[str, Any], network: str) -> dict[str, Any]:
    """The tree of one network from the result of `from_bert_names`; parts may be missing."""
    return {name: parts[part] for name, part in NETWORK_PARTS[network].items() if part in parts}


def to_bert_names(tree: dict[str, Any]) -> dict[str, np.ndarray]:
    """Converts our embedder or reader to arrays by canonical name, without loss.

    The tree of a reader may contain a span head under `span_head`.
    """
    network = "reader" if "transform" in tree else "embedder"
    parts = {part: tree[name] for name, part in NETWORK_PARTS[network].items() if name in tree}
    if SPAN_HEAD in tree:
        spans = NETWORK_PARTS[SPAN_HEAD]
        parts |= {part: tree[SPAN_HEAD][name] for name, part in spans.items()}
    theirs = {}
    for path, (name, change) in _BERT_NAMES.items():
        leaf = _get(parts, path)
        if leaf is not None:
            theirs[name] = _theirs(np.asarray(leaf), change)
    for ours, (name, change) in _LAYER_NAMES.items():
        for i, layer in enumerate(np.asarray(tree["bert"]["layers"][ours])):
            theirs[f"bert.{_LAYER.format(i=i)}{name}"] = _theirs(layer, change)
    return theirs


def _layer(theirs: dict[str, np.ndarray], i: int, name: str, change: str, heads: int) -> np.ndarray:
    here, first = (f"bert.{_LAYER.format(i=number)}{name}" for number in (i, 0))
    if here not in theirs:
        raise MismatchError("the weights lack a part of BERT", expected=here, found="no such array")
    if theirs[here].shape != theirs[first].shape:
        raise MismatchError(
            "the layers of the weights differ in shape",
            where=here,
            expected=list(theirs[first].shape),
            found=list(theirs[here].shape),
        )
    return _ours(here, theirs[here], change, heads)


def _ours(name: str, array: np.ndarray, change: str, heads: int) -> np.ndarray:
    width = array.shape[-1 if change == "join" else 0] if array.ndim else 1
    if change in ("split", "project", "join") and width % heads:
        raise MismatchError(
            "the width of the weights is not divisible by the number of heads",
            where=name,
            expected=f"a multiple of num_attention_heads, {heads}",
            found=list(array.shape),
        )
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


def _set(tree: dict[str, Any], path: tuple[str, ...], leaf: np.ndarray) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf


def _get(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
    for name in path:
        if name not in tree:
            return None
        tree = tree[name]
    return tree
