"""The content of evidence.json: means and paired bootstrap intervals over queries."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8

from evidence_runs.collections import COLLECTIONS
from evidence_runs.measure import MEASURES, UNIT
from evidence_runs.start import read_of_one_start
from evidence_runs.systems import SYSTEMS, trained

GAINS = {
    "realm_over_start": ("realm", "start"),
    "realm_hybrid_over_start_hybrid": ("realm_hybrid", "start_hybrid"),
    "ict_over_start": ("ict", "start"),
    "ict_hybrid_over_start_hybrid": ("ict_hybrid", "start_hybrid"),
    "start_hybrid_over_start": ("start_hybrid", "start"),
    "start_reciprocal_ranks_over_start": ("start_reciprocal_ranks", "start"),
}
# The recipe of `realm` was chosen on these.
CHOSEN_ON = ("trecqa", "financebench-pages", "covidqa")
# Paired differences of each collection.
PAIRS = (
    ("start_hybrid", "start"),
    ("ict", "start"),
    ("realm", "start"),
    ("realm", "ict"),
    ("ict_hybrid", "start_hybrid"),
    ("realm_hybrid", "start_hybrid"),
    ("start_reciprocal_ranks", "start"),
)
RESAMPLES = 10_000
CONFIDENCE = 0.95

Records = dict[tuple[str, str], list[dict[str, Any]]]  # by collection and system, in seed order
Values = Float64[np.ndarray, "queries"]
Difference = dict[str, float]  # `mean`, `low` and `high`


def aggregate(folder: Path) -> dict[str, Any]:
    """The content of `evidence.json`, from the records in `folder`; nothing that was not measured.

    Values of queries are means over seeds. An interval is a bootstrap over queries: what another
    sample of queries would show with these trained encoders.
    """
    records = read_records(folder)
    collections: dict[str, Any] = {}
    for (collection, system), own in sorted(records.items(), key=_place):
        figures = {name: _figure(own, name) for name in MEASURES}
        collections.setdefault(collection, {})[system] = figures
    return {
        "collections": collections,
        "gain": _gains(records, COLLECTIONS),
        "gain_elsewhere": _gains(records, [one for one in COLLECTIONS if one not in CHOSEN_ON]),
        "differences": _differences(records),
        "training": _training(records),
    }


def read_records(folder: Path) -> Records:
    """The records in a folder; not those in folders below it.

    Raises:
      MismatchError: they start from two encoders; see `read_of_one_start`.
    """
    found: Records = {}
    for record in read_of_one_start(sorted(folder.glob("*.json"))):
        found.setdefault((record["collection"], record["system"]), []).append(record)
    return {key: sorted(own, key=lambda record: record["seed"]) for key, own in found.items()}


def _place(item: tuple[tuple[str, str], Any]) -> tuple[int, int]:
    collection, system = item[0]
    return list(COLLECTIONS).index(collection), list(SYSTEMS).index(system)


def _figure(records: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    values = by_query(records, name)
    low, high = _interval([values])
    seeds = [round(record[name], 4) for record in records]
    mean = float(np.mean([record[name] for record in records]))
    return {"mean": round(mean, 4), "low": low, "high": high, "seeds": seeds}


def by_query(records: Sequence[dict[str, Any]], name: str) -> Values:
    """Means over seeds of each query."""
    return np.mean([record["by_query"][name] for record in records], axis=0) / UNIT


def _paired(records: Records, collection: str, pair: tuple[str, str], name: str) -> Values | None:
    """Differences of two systems by query, over the seeds that both have."""
    one, other = (records.get((collection, system), []) for system in pair)
    if all(trained(system) for system in pair):
        one, other = with_common_seeds(one, other)
    if not one or not other:
        return None
    return by_query(one, name) - by_query(other, name)


def with_common_seeds(
    one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The records of the seeds that both have."""
    seeds = {record["seed"] for record in one} & {record["seed"] for record in other}
    first, second = ([record for record in own if record["seed"] in seeds] for own in (one, other))
    return first, second


def _interval(strata: Sequence[Values]) -> tuple[float, float]:
    """Interval of the mean of means: each collection's queries are drawn again."""
    means = np.zeros(RESAMPLES)
    for number, values in enumerate(strata):
        means += _times_drawn(len(values), number) @ values / len(values) / len(strata)
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [edge, 1 - edge])
    return round(float(low), 4), round(float(high), 4)


@functools.lru_cache(maxsize=32)  # hundreds of intervals are of the same few numbers of queries
def _times_drawn(queries: int, stratum: int) -> UInt8[np.ndarray, "samples queries"]:
    """How often each query is in each of RESAMPLES samples of as many queries.

    Numbers of `RandomState` are the same in all versions of NumPy; those of `default_rng` are not.
    """
    drawn = np.random.RandomState(stratum).randint(queries, size=(RESAMPLES, queries))
    places = drawn + queries * np.arange(RESAMPLES)[:, None]
    return np.bincount(places.ravel(), minlength=places.size).reshape(places.shape).astype(np.uint8)


def difference(strata: Sequence[Values]) -> Difference:
    """Mean over collections of the mean over queries, and its interval."""
    low, high = _interval(strata)
    mean = float(np.mean([values.mean() for values in strata]))
    return {"mean": round(mean, 4), "low": low, "high": high}


def _gains(records: Records, collections: Iterable[str]) -> dict[str, Any]:
    """Mean difference of nDCG@10 over the collections that have both systems."""
    found = {}
    for name, pair in GAINS.items():
        every = [_paired(records, one, pair, "ndcg_at_10") for one in collections]
        strata = [values for values in every if values is not None]
        if strata:
            found[name] = difference(strata)
    return found


def _differences(records: Records) -> dict[str, Any]:
    """Paired differences of nDCG@10 of each collection."""
    found: dict[str, Any] = {}
    for collection in COLLECTIONS:
        for one, other in PAIRS:
            values = _paired(records, collection, (one, other), "ndcg_at_10")
            if values is not None:
                own = found.setdefault(collection, {})
                own[f"{one}_over_{other}"] = difference([values])
    return found


def _training(records: Records) -> dict[str, Any]:
    """What a run measured on held-out sentences, without labels, and its cost; by seed."""
    found: dict[str, Any] = {}
    for collection in COLLECTIONS:
        own = records.get((collection, "realm"), [])
        if own:
            found[collection] = [
                {
                    "seed": record["seed"],
                    "utility": record["training"]["held_out_retrieval_utility"],
                    "p_null": record["training"]["held_out_p_null"],
                    "success_at_5": record["training"]["success_at_5"],
                    "minutes": round(sum(record["seconds"].values()) / 60, 1),
                    "device": record["device"],
                }
                for record in own
            ]
    return found


def last_utility(record: dict[str, Any]) -> float:
    """Held-out retrieval utility at the end of training, in nats."""
    return record["training"]["held_out_retrieval_utility"][-1][1]
