"""The variable names of Google's BERT, REALM and ORQA checkpoints, in the words of Hugging Face.

How many `module/` stand before a name says which model it is of (REALM_FACTS 3.2).
"""

import re

from realm_jax.interop.lazy import Lazy

# Of the optimiser; not of the model.
_SLOTS = {"adam_m", "adam_v", "AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1"}
_COUNTERS = {"global_step"}
_TUNED = "module/module/module/"  # an ORQA model: retriever and reader
_PLACES = [  # the first that fits
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


def of_the_optimiser(name: str) -> bool:
    """Whether a variable is a slot or a counter of the training that made the checkpoint."""
    return bool((_SLOTS | _COUNTERS) & set(name.split("/")))


def renamed(name: str, array: Lazy) -> tuple[str, Lazy]:
    """A variable as Hugging Face has it: dots, `weight` and `bias`, kernels turned to [out, in]."""
    for pattern, place in _PLACES:
        if pattern.match(name):
            name = pattern.sub(place, name, count=1)
            break
    *parents, last = name.split("/")
    if last == "kernel":
        array = array.transposed()
    last = f"{last}.weight" if last.endswith("_embeddings") else _LAST.get(last, last)
    return ".".join([*(_NUMBERED.sub(r"layer.\1", part) for part in parents), last]), array
