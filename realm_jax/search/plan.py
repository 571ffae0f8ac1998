"""How an approximate index is laid out and how widely it is searched, by the size of the corpus.

As ScaNN's own advice has it: brute force for a small corpus, quantised scores for a middling one, a
tree of partitions above that.
"""

from typing import Any

BRUTE_FORCE_BELOW = 20_000  # rows
TREE_FROM = 100_000  # rows
TRAINING_SAMPLE = 100_000  # rows from which centres are learnt ...
# ... or this many per leaf, if that is more: of 40, many clusters of the vectors get no centre.
TRAINING_PER_LEAF = 100
RESCORED_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # of one dimension of one row

Plan = dict[str, Any]


def make_plan(size: int, dims: int, options: Any) -> Plan:
    """The layout for `size` rows of `dims`; `options` is `config.search`.

    Returns:
      `size`, `dims`, `leaves` (0: no partitions), `leaves_searched`, `reorder` (hits rescored; 0:
      brute force, which is exact), `rescore` (their precision), `soar`.
    """
    plan: Plan = {"size": size, "dims": dims, "leaves": 0, "leaves_searched": 0, "reorder": 0}
    plan |= {"rescore": options.rescore, "soar": False}
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
    """The plan that a saved index was written with; indexes before `rescore` had float32."""
    return {"rescore": "float32", "soar": False, **description["plan"]}


def bytes_of(plan: Plan) -> int:
    """Memory of vectors and codes: 4 bits for every two dimensions, twice with SOAR."""
    codes = (plan["dims"] + 3) // 4 * (1 + plan["soar"]) if plan["reorder"] else 0
    return plan["size"] * (plan["dims"] * RESCORED_BYTES[plan["rescore"]] + codes)


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
