"""Sections of the report page that need only config, logs and measured values."""

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
from realm_jax.report.run_data import RunData

_VERSIONED = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "scann", "numpy", "tokenizers")
_PARTS = ("embed", "build", "check", "publish")


def tiles_section(run: RunData) -> Element:
    """Tiles with the main results; values that were not measured are omitted."""
    m, k = run.measured, run.config.evaluation.recall_k
    found: list[tuple[str, str]] = []
    recalls = list(m.get(f"recall_at_{k}", {}).values())
    if len(recalls) > 1:
        found += [(f"{recalls[0]:.0%} → {recalls[-1]:.0%}", f"recall@{k} before → after training")]
    utility = run.last("realm", "held_out_retrieval_utility")
    if utility is not None:
        found += [(f"{utility:+.2f}", "retrieval utility on held-out text, nats per word piece")]
    if "exact_match" in m:
        closed_book = m.get("exact_match_closed_book")
        without = "" if closed_book is None else f" (without retrieval {closed_book:.0%})"
        found += [(f"{m['exact_match']:.0%}", f"exact match on held-out questions{without}")]
    if "staleness_steps" in m:
        staleness = m["staleness_steps"]
        mean_max = f"{staleness['mean']:.0f}, {staleness['max']:.0f}"
        found += [(str(m["index_swaps"]), "index swaps")]
        found += [(mean_max, "index staleness in steps: mean, maximum")]
    total = sum(run.stage_seconds.values())
    if total:
        found += [(span(total), "total training time")]
    tiles = [
        element("div", element("b", a), element("span", b, class_="quiet"), class_="tile")
        for a, b in found
    ]
    return element("div", tiles, class_="tiles")


def seconds_section(run: RunData) -> list[Element]:
    """Time per stage of the trainer and per refresh of the index builder."""
    stages = [
        (STAGE_TITLES[stage], span(seconds), _speed(run, stage))
        for stage, seconds in run.stage_seconds.items()
    ]
    found = (
        [table(("stage", "time", "word pieces per second, last value"), stages)] if stages else []
    )
    if run.refreshes:
        rows = [
            (
                count(record["step"]),
                span(record["seconds"]),
                *(f"{record.get(f'seconds_{part}', 0.0):.1f} s" for part in _PARTS),
                f"{record['recall']:.3f}",
                count(record["passages"]),
            )
            for record in run.refreshes
        ]
        head = ("index of step", "time", *_PARTS, "recall@10", "passages")
        found += [element("h3", "Refreshes by the index builder"), table(head, rows)]
    return found


def _speed(run: RunData, stage: str) -> str:
    pieces, mfu = (run.last(stage, metric) for metric in ("pieces_per_second", "mfu"))
    utilization = "" if mfu is None else f", MFU {mfu:.1%}"
    return "" if pieces is None else f"{count(pieces)}{utilization}"


def config_section(run: RunData) -> list[Element]:
    """The config keys that differ from the defaults, then the whole config."""
    flat, defaults = _flat(run.config), _flat(default())
    changed = [
        (key, str(value), str(defaults[key]))
        for key, value in flat.items()
        if value != defaults[key]
    ]
    text = config_lib.to_json(run.config)
    return [
        element(
            "details",
            element("summary", f"{len(changed)} keys differ from the defaults"),
            table(("key", "this run", "default"), changed),
        ),
        element("details", element("summary", "whole config"), element("pre", text)),
    ]


def versions_section() -> Element:
    """Versions of the packages and devices of the process that wrote the page."""
    rows = [("realm-jax", __version__), ("Python", platform.python_version())]
    for name in _VERSIONED:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    kinds = Counter(device.device_kind for device in jax.devices())
    rows += [("devices", ", ".join(f"{number} {kind}" for kind, number in kinds.items()))]
    return table(("package", "version when this page was written"), rows)


def _flat(config: ConfigDict) -> dict[str, Any]:
    """All config values by dotted key."""
    found: dict[str, Any] = {}
    for key in config_lib.keys(config):
        value: Any = config
        for name in key.split("."):
            value = value[name]
        found[key] = value
    return found
