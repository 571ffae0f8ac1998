"""What retrieval costs a training step when it runs beside the step before.

Command:  python benchmarks/overlap.py [--quick] [--size=small] [--rows=1000000] [--json]
Data:     none: pieces and vectors are drawn
Output:   `overlap_ratio`: seconds of a step whose candidates are searched for, over seconds of a
          step whose candidates are at hand; medians of blocks of steps that take turns
Time:     --quick (100,000 rows) under five minutes on two cores; full ten minutes

jax gets all cores but one, and search has that one. Both forms pack their rows beside the step;
the one with candidates at hand neither embeds queries nor searches.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from training import Training

from realm_jax import runtime

BLOCK = 4  # steps that a form has before it is the other's turn


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    arguments = parser.parse_args()
    rows, blocks = (100_000, 3) if arguments.quick else (arguments.rows, arguments.blocks)
    runtime.start(threads=max(1, (os.cpu_count() or 1) - 1))
    with tempfile.TemporaryDirectory() as folder:
        report = measured(Path(folder), arguments.size, rows, blocks)
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def measured(folder: Path, size: str, rows: int, blocks: int) -> dict[str, object]:
    """Seconds of a step in both forms, and their ratio."""
    training = Training(folder, size, rows)
    training.publish(0)
    stage, width = training.stage, training.config.retrieval.candidates
    text, index = stage._text, training.index.for_step(0)
    count = training.config.stages.realm.batch
    known = [text.batch(step, count) for step in range(BLOCK + 1)]
    hits = [stage._retriever.hits(index, one.queries, width) for one in known]

    def at_hand(step: int) -> object:
        return stage._packed(step, known[step], hits[step])

    forms = {"searched for": None, "at hand": at_hand}
    taken: dict[str, list[float]] = {form: [] for form in forms}
    for block in range(blocks + 1):
        for form, make in forms.items():
            spent = [seconds for _, seconds in training.steps(0, BLOCK + 1, make)]
            if block:  # the first compiles
                taken[form].append(statistics.median(spent))
    training.index.close()
    medians = {form: statistics.median(spent) for form, spent in taken.items()}
    return {
        "rows": rows,
        "size": size,
        "seconds": {form: round(spent, 4) for form, spent in medians.items()},
        "overlap_ratio": round(medians["searched for"] / medians["at hand"], 4),
        "ratios_of_blocks": [
            round(a / b, 3) for a, b in zip(*(taken[form] for form in forms), strict=True)
        ],
    }


if __name__ == "__main__":
    main()
