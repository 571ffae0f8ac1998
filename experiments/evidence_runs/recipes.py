"""Other recipes than that of the tables: records with a label, against the start and a base."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence_runs.aggregate import (
    Difference,
    by_query,
    difference,
    last_utility,
    read_records,
    with_common_seeds,
)
from evidence_runs.collections import COLLECTIONS
from evidence_runs.systems import CROSSED

MEASURE = "ndcg_at_10"
PATCH = "change.patch"  # beside the records, if the recipe needs a change of the code


@dataclass(frozen=True)
class Recipe:
    """Records in the folder of this label.

    Attributes:
      change: what differs from `base`, for the page.
      base: label of the recipe that it is compared with; `""`: that of the tables.
      system: the trained system that was measured.
    """

    change: str
    base: str = ""
    system: str = "realm"


WITHOUT_ICT = "without_ict"
FIRST = "first_recipe"
HUNDRED = "hundred_steps"
HUNDRED_TITLES = "hundred_steps_titles"


def _penalty(weight: int) -> str:
    return f"a penalty on the distance to the start (`stages.realm.distance_penalty={weight}`)"


RECIPES = {
    WITHOUT_ICT: Recipe("no ICT before REALM (`stages.ict.steps=0`)"),
    FIRST: Recipe("one draw, no titles, no penalty, a threshold of 0.1", WITHOUT_ICT),
    "titles": Recipe("titles before half of the queries (`stages.realm.title_share=0.5`)", FIRST),
    "draws": Recipe("eight draws for each query (`stages.realm.draws=8`)", FIRST),
    "thresholds": Recipe("no penalty, thresholds 0.8 and 0.5", WITHOUT_ICT),
    "near": Recipe(
        "a penalty of 10 instead of 3 (`stages.realm.distance_penalty=10`)", WITHOUT_ICT
    ),
    "query_tower": Recipe(
        "gradients to the vectors of the queries only, with the index of the start, without "
        "thresholds; evaluated with both",
        "thresholds",
    ),
    "no_thresholds": Recipe("eight draws, without thresholds", "titles"),
    "random_span": Recipe("random spans instead of salient ones", FIRST),
    "rare_spans": Recipe("rare spans only (`--rare-spans`)", "no_thresholds"),
    "rare_one_draw": Recipe("one draw", "rare_spans"),
    HUNDRED: Recipe("100 steps instead of 300", "rare_spans"),
    f"{HUNDRED}_8_passages": Recipe("eight passages for each query instead of four", HUNDRED),
    f"{HUNDRED}_no_mask": Recipe("queries that the embedder reads without [MASK]", HUNDRED),
    f"{HUNDRED}_pdist": Recipe(
        "the passages' likelihoods as the retriever's target (`stages.realm.retriever_loss=pdist`)",
        HUNDRED,
    ),
    f"{HUNDRED}_in_batch": Recipe(
        "passages of the batch's other queries as more candidates, which the reader does not read",
        HUNDRED,
    ),
    f"{HUNDRED}_in_batch_pdist": Recipe("`pdist` with these candidates", f"{HUNDRED}_in_batch"),
    HUNDRED_TITLES: Recipe("titles before all queries (`stages.realm.title_share=1`)", HUNDRED),
    f"{HUNDRED}_near": Recipe(_penalty(10), HUNDRED_TITLES),
    f"{HUNDRED}_near3": Recipe(_penalty(3), HUNDRED_TITLES),
    f"{HUNDRED}_query_tower": Recipe(
        "gradients to the vectors of the queries only; evaluated with both", HUNDRED_TITLES
    ),
    "ict_near3": Recipe(
        "ICT with a penalty on the distance to the start (`stages.ict.distance_penalty=3`)",
        system="ict",
    ),
    "ict_near10": Recipe(
        "a penalty of 10, and titles before half of the queries (`stages.ict.title_share=0.5`)",
        "ict_near3",
        system="ict",
    ),
}


def aggregate_recipes(folder: Path) -> list[dict[str, Any]]:
    """Differences of nDCG@10, paired by query, of each recipe and collection with records.

    Args:
      folder: of the records of the tables; each recipe has a folder in it.
    """
    tables = read_records(folder)
    found = []
    for label, recipe in RECIPES.items():
        records, bases = read_records(folder / label), read_records(folder / recipe.base)
        for collection in COLLECTIONS:
            own = records.get((collection, recipe.system), [])
            if not own:
                continue
            start = tables[collection, "start"]
            hybrid = records.get((collection, f"{recipe.system}_hybrid"), [])
            crossed = {one: records.get((collection, one), []) for one in CROSSED}
            found.append(
                {
                    "label": label,
                    "change": recipe.change,
                    "base": recipe.base or recipe.system,
                    "collection": collection,
                    "seeds": [record["seed"] for record in own],
                    MEASURE: round(float(by_query(own, MEASURE).mean()), 4),
                    "over_start": _over(own, start),
                    "over_base": _over(
                        *with_common_seeds(own, bases.get((collection, recipe.system), []))
                    ),
                    "hybrid_over_start_hybrid": _over(
                        hybrid, tables.get((collection, "start_hybrid"), [])
                    ),
                    "crossed": {one: _over(part, start) for one, part in crossed.items() if part},
                    "utility": [
                        round(last_utility(record), 2) for record in own if recipe.system == "realm"
                    ],
                    "patch": (folder / label / PATCH).exists(),
                }
            )
    return found


def _over(own: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> Difference | None:
    """The difference of the means over seeds; None without records of one of them."""
    if not own or not base:
        return None
    return difference([by_query(own, MEASURE) - by_query(base, MEASURE)])
