"""Chooses what the backward pass recomputes, and the micro-batches (`realm compile --advise`)."""

import itertools
import logging
from typing import Any

from realm_jax.errors import RealmError
from realm_jax.planning.chips import Slice
from realm_jax.planning.compile_all import compile_in_child
from realm_jax.planning.compile_report import MOST_HBM

log = logging.getLogger(__name__)
_REMAT, _MICRO_BATCHES = ("none", "attention", "full"), (1, 2)
_SHOWN = ("hbm_share", "roofline_seconds", "mfu_bound", "hbm_traffic_bytes", "error")


def advise(target: Slice, name: str, flags: list[str], overrides: dict[str, str]) -> dict[str, Any]:
    """Compiles a training step with each choice, each in a child process.

    Args:
      target: slice of the trainer.
      name: of the program, such as `realm/train`.
      flags: of `realm compile`, without --step, --json and --config.KEY=VALUE.
      overrides: config key -> value.

    Returns:
      `tried`: for each choice its `config` and numbers of its report, or its `error`; `advised`:
      the `config` with the shortest roofline of those that keep the memory limit.

    Raises:
      RealmError: no choice does.
    """
    tried = []
    for parts, remat in itertools.product(_MICRO_BATCHES, _REMAT):
        choice = {"model.remat": remat, "optimizer.accumulate_steps": str(parts)}
        changes = [f"--config.{key}={value}" for key, value in {**overrides, **choice}.items()]
        report = compile_in_child(name, [*flags, *changes], target)
        tried.append({"config": choice} | {key: report[key] for key in _SHOWN if key in report})
        log.info("%s", advice_line(tried[-1]))
    advised = quickest(tried, target)["config"]
    return {"topology": target.name, "name": name, "tried": tried, "advised": advised}


def quickest(tried: list[dict[str, Any]], target: Slice) -> dict[str, Any]:
    """The choice with the shortest roofline that keeps the memory limit; see `advise`."""
    fitting = [one for one in tried if "error" not in one and one["hbm_share"] <= MOST_HBM]
    if not fitting:
        raise RealmError(
            f"no choice keeps {MOST_HBM:.0%} of the memory of a chip",
            where=target.name,
            found=tried[-1].get("error", f"{tried[-1]['hbm_share']:.0%} at least"),
            fix="--config.model.compute=bfloat16, a smaller stages.realm.batch, or more chips",
        )
    return min(fitting, key=lambda one: (one["roofline_seconds"], one["hbm_share"]))


def advice_line(one: dict[str, Any]) -> str:
    """Formats a choice and its numbers."""
    flags = " ".join(f"--config.{key}={value}" for key, value in one["config"].items())
    share = f"{one['hbm_share']:.0%} of the memory" if "hbm_share" in one else "memory unknown"
    if "error" in one:
        return f"{flags}  does not compile: {share}"
    return (
        f"{flags}  {share}, roofline {one['roofline_seconds'] * 1e3:.1f} ms, "
        f"MFU at most {one['mfu_bound']:.0%}"
    )
