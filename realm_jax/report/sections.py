"""The parts of the page that need the run's own records alone."""

import platform
from collections import Counter
from importlib import metadata
from typing import Any

import jax
from ml_collections import ConfigDict

from realm_jax import __version__
from realm_jax import config as config_lib
from realm_jax.defaults import default
from realm_jax.monitoring.format import count, span
from realm_jax.report.curves import STAGE_TITLES
from realm_jax.report.html import Element, element, table
from realm_jax.report.run_data import FinishedRun

_VERSIONED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "scann", "numpy", "tokenizers")
_PARTS = ("embed", "build", "check", "publish")


def tiles(finished: FinishedRun) -> Element:
    """What one looks at first; what was not measured is not there."""
    m, k = finished.measured, finished.config.evaluation.neighbours
    found: list[tuple[str, str]] = []
    recalls = list(m.get(f"recall_at_{k}", {}).values())
    if len(recalls) > 1:
        found += [(f"{recalls[0]:.0%} → {recalls[-1]:.0%}", f"recall@{k}, before → after")]
    utility = finished.last("realm", "held_out_retrieval_utility")
    if utility is not None:
        found += [(f"{utility:+.2f}", "retrieval utility, held out, nats per piece")]
    if "exact_match" in m:
        by_heart = m.get("exact_match_closed_book")
        beside = "" if by_heart is None else f" (closed book {by_heart:.0%})"
        found += [(f"{m['exact_match']:.0%}", f"questions answered exactly{beside}")]
    if "staleness_steps" in m:
        ages = m["staleness_steps"]
        found += [(str(m["index_swaps"]), "fresh indexes swapped in")]
        found += [(f"{ages['mean']:.0f}, {ages['max']:.0f}", "staleness in steps, mean and most")]
    total = sum(finished.stage_seconds.values())
    if total:
        found += [(span(total), "training in all")]
    made = [
        element("div", element("b", a), element("span", b, class_="quiet"), class_="tile")
        for a, b in found
    ]
    return element("div", made, class_="tiles")


def seconds_section(finished: FinishedRun) -> list[Element]:
    """Where the time went, in both jobs."""
    stages = [
        (STAGE_TITLES[stage], span(seconds), _speed(finished, stage))
        for stage, seconds in finished.stage_seconds.items()
    ]
    found = [table(("stage", "time", "real pieces per second, last"), stages)] if stages else []
    if finished.refreshes:
        rows = [
            (
                count(record["step"]),
                span(record["seconds"]),
                *(f"{record.get(f'seconds_{part}', 0.0):.1f} s" for part in _PARTS),
                f"{record['recall']:.3f}",
                count(record["passages"]),
            )
            for record in finished.refreshes
        ]
        head = ("index of step", "time", *_PARTS, "recall@10", "passages")
        found += [element("h3", "Refreshes of the index builder"), table(head, rows)]
    return found


def _speed(finished: FinishedRun, stage: str) -> str:
    pieces, mfu = (finished.last(stage, figure) for figure in ("pieces_per_second", "mfu"))
    share = "" if mfu is None else f", MFU {mfu:.1%}"
    return "" if pieces is None else f"{count(pieces)}{share}"


def config_section(finished: FinishedRun) -> list[Element]:
    """What differs from the defaults, then everything."""
    flat, usual = _flat(finished.config), _flat(default())
    changed = [
        (key, str(value), str(usual[key])) for key, value in flat.items() if value != usual[key]
    ]
    text = config_lib.to_json(finished.config)
    return [
        element(
            "details",
            element("summary", f"{len(changed)} keys that differ from the defaults"),
            table(("key", "this run", "default"), changed),
        ),
        element("details", element("summary", "the whole config"), element("pre", text)),
    ]


def versions_section() -> Element:
    """Of what wrote this page, which is what ran when the run has just ended."""
    rows = [("realm-jax", __version__), ("Python", platform.python_version())]
    for name in _VERSIONED:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    kinds = Counter(device.device_kind for device in jax.devices())
    rows += [("devices", ", ".join(f"{number} {kind}" for kind, number in kinds.items()))]
    return table(("of this page", ""), rows)


def _flat(config: ConfigDict) -> dict[str, Any]:
    """All leaves by dotted key."""
    found: dict[str, Any] = {}
    for key in config_lib.keys(config):
        owner: Any = config
        for name in key.split("."):
            owner = owner[name]
        found[key] = owner
    return found
