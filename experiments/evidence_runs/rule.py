"""What a threshold of held-out utility would keep: `stages.realm.least_utility`."""

from pathlib import Path
from typing import Any

import numpy as np

from evidence_runs.aggregate import Records, by_query, difference, last_utility, read_records
from evidence_runs.collections import COLLECTIONS
from evidence_runs.recipes import FIRST, MEASURE, WITHOUT_ICT

# Label of the records -> thresholds, in nats. 0: none; the runs of FIRST had one of 0.1.
THRESHOLDS = {FIRST: (0.1, 0.8), WITHOUT_ICT: (0.0, 0.8), "": (0.0, 0.8)}


def aggregate_rule(folder: Path) -> list[dict[str, Any]]:
    """The collections whose training a threshold keeps, and the mean gain over the start.

    Args:
      folder: of the records of the tables; recipes have folders in it.
    """
    records = read_records(folder)
    found = []
    for label, thresholds in THRESHOLDS.items():
        own = records | read_records(folder / label)
        for threshold in thresholds:
            rule = _of_threshold(own, threshold)
            if rule is not None:
                found.append({"label": label, "threshold": threshold, **rule})
    return found


def _of_threshold(records: Records, threshold: float) -> dict[str, Any] | None:
    """A run below the threshold has the gain 0, because it exports the start."""
    kept, strata = [], []
    for name in COLLECTIONS:
        if (name, "realm") not in records or (name, "start") not in records:
            continue
        start = by_query(records[name, "start"], MEASURE)
        runs = records[name, "realm"]
        keep = [not threshold or last_utility(record) >= threshold for record in runs]
        values = [
            by_query([record], MEASURE) if one else start
            for record, one in zip(runs, keep, strict=True)
        ]
        kept += [name] * any(keep)
        strata.append(np.mean(values, axis=0) - start)
    return {"kept": kept, "gain": difference(strata)} if strata else None
