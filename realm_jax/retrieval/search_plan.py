"""How an approximate index is partitioned, quantised and searched, by the size of the corpus.

The thresholds follow ScaNN's documentation: brute force for a small corpus, quantised scores for a
medium one, quantised scores in a tree of partitions for a large one.
"""

from typing import Any

BRUTE_FORCE_BELOW = 20_000  # rows
TREE_FROM = 100_000  # rows
TRAINING_SAMPLE = 100_000  # least number of rows that partition centres are trained on
# Rows per leaf that centres are trained on. ScaNN needs 50 in each cluster; with 40 per leaf, many
# clusters of the vectors get no centre.
TRAINING_PER_LEAF = 100
RESCORED_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # per dimension of a row
# Keys that must be equal in two plans for their centres and codebooks to be interchangeable.
TRAINED_BY = ("size", "dims", "leaves", "rescore", "dims_per_code", "soar")

Plan = dict[str, Any]


def make_plan(size: int, dims: int, options: Any) -> Plan:
    """Chooses the plan for an index.

    Args:
      size: N.
      dims: E.
      options: `config.search`.

    Returns:
      size: N.
      dims: E.
      leaves: partitions of the tree; 0: no tree.
      leaves_searched: partitions scored per query.
      reorder: hits per query that are rescored; 0: brute force, which is exact.
      rescore: dtype of the vectors for rescoring.
      dims_per_code: dimensions per 4-bit code.
      soar: whether each row is also stored in a second partition.
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
    """The plan in a `searcher.json`; keys that older versions did not write get their defaults."""
    return {"rescore": "float32", "soar": False, "dims_per_code": 2, **description["plan"]}


def bytes_of(plan: Plan) -> int:
    """Memory of the vectors for rescoring and of the codes, which SOAR stores twice."""
    codes = code_bytes(plan["dims"], plan["dims_per_code"]) * (1 + plan["soar"])
    rescored = plan["dims"] * RESCORED_BYTES[plan["rescore"]]
    return plan["size"] * (rescored + (codes if plan["reorder"] else 0))


def code_bytes(dims: int, dims_per_code: int) -> int:
    """Bytes of the codes of one row; each code has 4 bits."""
    codes = -(-dims // dims_per_code)
    return (codes + 1) // 2


def training_sample(plan: Plan) -> int:
    """Number of rows that partition centres are trained on."""
    return max(TRAINING_SAMPLE, TRAINING_PER_LEAF * plan["leaves"])


def widen(plan: Plan) -> bool:
    """Searches and rescores four times as much, in place; False if everything is already."""
    before = dict(plan)
    for key, most in {"leaves_searched": "leaves", "reorder": "size"}.items():
        plan[key] = min(4 * plan[key], plan[most])
    return plan != before


def replan(plan: Plan, new: Plan) -> bool:
    """Takes the settings of the search from `new`, in place.

    Returns:
      False, and changes nothing, if the centres and codebooks of a built index do not fit `new`, or
      if it has none.
    """
    if not (plan["reorder"] and new["reorder"]) or any(plan[k] != new[k] for k in TRAINED_BY):
        return False
    plan.update({key: new[key] for key in ("leaves_searched", "reorder")})
    return True
