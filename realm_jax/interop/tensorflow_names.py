"""Converts variable names of Google's BERT, REALM and ORQA checkpoints to Hugging Face's names.

In the released checkpoints, the number of `module/` prefixes identifies the network.
"""

import re

from realm_jax.interop.lazy import LazyArray

# Variables of the optimizer.
_SLOTS = {"adam_m", "adam_v", "AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1"}
_COUNTERS = {"global_step"}
_TUNED = "module/module/module/"  # an ORQA model: retriever and reader
_RULES = [  # the first match applies
    (re.compile(r"reader/module/(bert|cls)/"), r"reader/\1/"),
    (re.compile(r"reader/dense/"), "reader/qa_outputs/dense_intermediate/"),
    (re.compile(r"reader/dense_1/"), "reader/qa_outputs/dense_output/"),
    (re.compile(r"reader/layer_normalization/"), "reader/qa_outputs/layer_normalization/"),
    (re.compile(rf"{_TUNED}module/(bert|cls)/"), r"embedder/\1/"),
    (re.compile(rf"{_TUNED}(dense|LayerNorm)/"), r"embedder/cls/\1/"),
    (re.compile(rf"{_TUNED}(bert|cls)/"), r"\1/"),
    (re.compile(r"module/module/(dense|LayerNorm)/"), r"cls/\1/"),
]
_LAST = {"kernel": "weight", "gamma": "weight", "beta": "bias", "output_bias": "bias"}
_NUMBERED = re.compile(r"layer_(\d+)")


def is_optimizer_variable(name: str) -> bool:
    """Whether a variable is an optimizer slot or the step counter."""
    return bool((_SLOTS | _COUNTERS) & set(name.split("/")))


def to_hugging_face(name: str, array: LazyArray) -> tuple[str, LazyArray]:
    """A variable in Hugging Face's form: dots, `weight` and `bias`, kernels as [out, in]."""
    for pattern, replacement in _RULES:
        if pattern.match(name):
            name = pattern.sub(replacement, name, count=1)
            break
    *parents, last = name.split("/")
    if last == "kernel":
        array = array.transposed()
    last = f"{last}.weight" if last.endswith("_embeddings") else _LAST.get(last, last)
    return ".".join([*(_NUMBERED.sub(r"layer.\1", part) for part in parents), last]), array
