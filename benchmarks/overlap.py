"""The cost of retrieval in a training step, when it overlaps with the previous step.

Command:  python benchmarks/overlap.py [--quick] [--size=small] [--rows=1000000] [--json]
Data:     none: tokens and vectors are random
Output:   `overlap_ratio`: seconds of a step that retrieves its candidates, over seconds of a step
          whose candidates are known; medians over blocks of steps that take turns
Time:     --quick (100,000 rows) under five minutes on two cores; full ten minutes

JAX gets all cores but one, which is left to search. Both variants pack their rows during the
previous step. The variant with known candidates neither embeds queries nor searches.
"""

import statistics
from pathlib import Path

from training import Training, run_benchmark, usual_buckets

from realm_jax.retrieval.make_retriever import make_retriever

BLOCK = 4  # steps of one variant before the other takes its turn


def measure(folder: Path, size: str, rows: int, blocks: int) -> dict[str, object]:
    """Times a step of both variants."""
    training = Training(folder, size, rows)
    training.publish(0)
    config, store, text = training.config, training.store, training.text
    index, retriever = training.index.for_step(0), make_retriever(config, store, None)
    texts = [text.batch(step, config.stages.realm.batch) for step in range(BLOCK + 1)]
    hits = [retriever.hits(index, one.queries, config.retrieval.candidates) for one in texts]
    known = list(zip(texts, hits, strict=True))
    buckets = usual_buckets(config, store, text)

    def with_known_candidates(step: int) -> object:
        return training.stage.with_candidates(*known[step], config.stages.realm.batch, buckets)

    variants = {"searched for": None, "at hand": with_known_candidates}
    spent: dict[str, list[float]] = {name: [] for name in variants}
    for block in range(blocks + 1):
        for name, make in variants.items():
            seconds = [one for _, one in training.steps(0, BLOCK + 1, make)]
            if block:  # the first block compiles
                spent[name].append(statistics.median(seconds))
    training.index.close()
    medians = {name: statistics.median(seconds) for name, seconds in spent.items()}
    return {
        "rows": rows,
        "size": size,
        "seconds": {name: round(seconds, 4) for name, seconds in medians.items()},
        "overlap_ratio": round(medians["searched for"] / medians["at hand"], 4),
        "ratios_of_blocks": [
            round(a / b, 3) for a, b in zip(*(spent[name] for name in variants), strict=True)
        ],
    }


if __name__ == "__main__":
    run_benchmark(__doc__, measure, size="small", repeat=("blocks", 9, 3))
