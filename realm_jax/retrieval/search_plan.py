"""How an approximate index is laid out and how widely it is searched, by the size of the corpus.

As ScaNN's own advice has it: brute force for a small corpus, quantised scores for a middling one, a
tree of partitions above that.
"""

from typing import Any

BRUTE_FORCE_BELOW = 20_000  # rows
TREE_FROM = 100_000  # rows
TRAINING_SAMPLE = 100_000  # rows from which centres are learnt ...
# ... or this many per leaf, if that is more. ScaNN wants 50 in each cluster of them: of 40 a leaf,
# many clusters of the vectors get no centre.
TRAINING_PER_LEAF = 100
RESCORED_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # of one dimension of one row

Plan = dict[str, Any]


def make_plan(size: int, dims: int, options: Any) -> Plan:
    """The layout for `size` rows of `dims`; `options` is `config.search`.

    Returns:
      `size`, `dims`, `leaves` (0: no partitions), `leaves_searched`, `reorder` (hits rescored; 0:
      brute force, which is exact), `rescore` (their precision), `dims_per_code`, `soar`.
    """
    plan: Plan = {"size": size, "dims": dims, "leaves": 0, "leaves_searched": 0, "reorder": 0}
    plan |= {"rescore": options.rescore, "dims_per_code": options.dims_per_code, "soar": False}
    if size < BRUTE_FORCE_BELOW:
        return plan | {"rescore": "float32"}
    plan["reorder"] = min(options.reorder, size)
    if size >= TREE_FROM or options.leaves:
        plan["leaves"] = min(options.leaves or round(size**0.5), size)
        plan["leaves_searched"] = min(
            options.leaves_searched or -(-plan["leaves"] // 10), plan["leaves"]
        )
        plan["soar"] = options.soar
    return plan


def of_description(description: dict[str, Any]) -> Plan:
    """The plan that a saved index was written with; older ones do not say all of it."""
    return {"rescore": "float32", "soar": False, "dims_per_code": 2, **description["plan"]}


def bytes_of(plan: Plan) -> int:
    """Memory of vectors and codes; SOAR has the codes twice."""
    codes = code_bytes(plan["dims"], plan["dims_per_code"]) * (1 + plan["soar"])
    rescored = plan["dims"] * RESCORED_BYTES[plan["rescore"]]
    return plan["size"] * (rescored + (codes if plan["reorder"] else 0))


def code_bytes(dims: int, dims_per_code: int) -> int:
    """Of the codes of a row, each of which takes 4 bits."""
    codes = -(-dims // dims_per_code)
    return (codes + 1) // 2


def training_sample(plan: Plan) -> int:
    """Rows that centres are learnt from."""
    return max(TRAINING_SAMPLE, TRAINING_PER_LEAF * plan["leaves"])


def widen(plan: Plan) -> bool:
    """Four times the partitions and the rescored rows, in place; False once all are."""
    if plan["reorder"] in (0, plan["size"]):
        return False
    for key, most in {"leaves_searched": "leaves", "reorder": "size"}.items():
        plan[key] = min(4 * plan[key], plan[most])
    return True
