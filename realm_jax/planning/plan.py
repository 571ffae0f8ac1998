"""A run on paper: from compile reports to step time, refresh, staleness, memory and chip-hours.

Arithmetic only. The compiled programs give the least time their work can take (`roofline_seconds`);
how near a real run comes to it is assumed, and every assumption is in `Assumptions`, printed with the
plan.
"""

import math
from dataclasses import asdict
from typing import Any

from ml_collections import ConfigDict

from realm_jax.errors import InputError
from realm_jax.planning.chips import Slice
from realm_jax.planning.flops import train_flops
from realm_jax.planning.limits import Assumptions, index_row_bytes, limits


def plan(
    place: Slice,
    passages: int,
    builder_share: float,
    config: ConfigDict,
    reports: dict[str, dict[str, Any]],
    assumed: Assumptions | None = None,
) -> dict[str, Any]:
    """The plan of a run whose trainer has the slice `place`.

    Args:
      place: the trainer's chips; the builder's come on top.
      passages: N, in the knowledge corpus.
      builder_share: builder's chips among all chips, 0 to 1 (the paper: 16 of 80).
      config: of the run.
      reports: compile reports of steps `train` and `embed`, of this kind of chip.
      assumed: what to assume.

    Returns:
      JSON: seconds, steps, bytes and hours by name; `limits` ascending, `breaks_first` the first.

    Raises:
      InputError: a share or a corpus that cannot be.
    """
    if passages < 1:
        raise InputError(
            "a corpus without passages", where="--passages", expected="at least 1", found=passages
        )
    assumed = assumed or Assumptions()
    chips = builder_chips(place, builder_share)
    step = step_seconds(reports["train"], place.chips, assumed)
    parts = refresh_parts(passages, chips, place, config, reports["embed"], assumed)
    refresh = sum(parts.values())
    found = limits(passages, step, refresh, place, config, reports["train"], assumed)
    hours = config.stages.realm.steps * step / 3600
    return {
        "topology": place.name,
        "passages": passages,
        "train_chips": place.chips,
        "builder_chips": chips,
        "step_seconds": step,
        "refresh_seconds": refresh,
        "refresh_parts": parts,
        "refresh_steps": refresh / step,
        "share_to_refresh_every": share_for(
            refresh / step, float(config.refresh.every), builder_share
        ),
        "staleness_steps": staleness(refresh / step, config.refresh.every),
        "index_bytes": passages * index_row_bytes(config),
        "days": hours / 24,
        "chip_hours": hours * (place.chips + chips),
        "breaks_first": found[0].part,
        "breaks_at_passages": found[0].passages,
        "broken": [limit.part for limit in found if limit.passages < passages],
        "limits": [asdict(limit) for limit in found],
        "assumed": asdict(assumed),
    }


def builder_chips(place: Slice, share: float) -> int:
    """Chips that build, when they are `share` of all and the trainer has those of `place`.

    Raises:
      InputError: no share.
    """
    if not 0 < share < 1:
        raise InputError(
            "the share of builder chips cannot be",
            where="--builder_share",
            expected="more than 0 and less than 1; the paper has 16 of 80 chips, 0.2",
            found=share,
        )
    return max(1, round(place.chips * share / (1 - share)))


def embedding_seconds(report: dict[str, Any], passages: int, chips: int) -> float:
    """Least time in which `chips` chips embed a corpus: a report of step `embed`, divided up."""
    a_passage = report["roofline_seconds"] * report["chips"] / report["rows"]
    return passages * a_passage / chips


def step_seconds(report: dict[str, Any], chips: int, assumed: Assumptions) -> float:
    """A training step on `chips` chips of the report's kind: work divides over chips."""
    alone = report["roofline_seconds"] * report["chips"]
    return alone / chips / assumed.share_of_roofline


def stage_chip_hours(
    config: ConfigDict,
    stage: str,
    report: dict[str, Any],
    vocabulary: int,
    assumed: Assumptions | None = None,
) -> float:
    """Of the chips that train a whole stage, at the speed of the compiled REALM step.

    Args:
      config: of the run.
      stage: `ict`, `realm` or `qa`.
      report: compile report of step `train`; any config's, of the chips meant.
      vocabulary: V.
      assumed: what to assume.
    """
    assumed = assumed or Assumptions()
    speed = report["flops_per_chip"] / report["roofline_seconds"] * assumed.share_of_roofline
    steps = config.stages[stage].steps
    return steps * train_flops(config, stage, vocabulary) / speed / 3600


def refresh_parts(
    passages: int,
    chips: int,
    place: Slice,
    config: ConfigDict,
    report: dict[str, Any],
    assumed: Assumptions,
) -> dict[str, float]:
    """Seconds of one refresh, by what they go into; passages are taken to be of full length."""
    embed = embedding_seconds(report, passages, chips) / assumed.share_of_roofline
    on_mesh = config.search.kind == "mesh"
    build = 0.0 if on_mesh else passages * assumed.build_seconds / assumed.build_threads
    stored = passages * index_row_bytes(config) / assumed.bucket_bandwidth
    read = stored / place.hosts if on_mesh else stored
    return {"embed": embed, "build": build, "write": stored, "read": read}


def staleness(refresh_steps: float, every: int) -> float:
    """Mean staleness in steps, when the builder takes `refresh_steps` and snapshots come `every`.

    A slow builder starts again at once, on a snapshot that is half of `every` old on average; a
    quick one waits for the next snapshot. An index is used until the next one comes.
    """
    if refresh_steps <= every:
        return refresh_steps + every / 2
    return every / 2 + 1.5 * refresh_steps


def share_for(refresh_steps: float, target: float, builder_share: float) -> float:
    """The builder share that refreshes in `target` steps, if `builder_share` takes `refresh_steps`.

    Only the builders grow; the trainer keeps its chips.
    """
    builders = builder_share / (1 - builder_share) * refresh_steps / target
    return builders / (1 + builders)


def plan_lines(made: dict[str, Any]) -> list[str]:
    """Lines for people."""
    parts = ", ".join(f"{name} {seconds(value)}" for name, value in made["refresh_parts"].items())
    lines = [
        f"{made['topology']} trains ({made['train_chips']} chips), {made['builder_chips']} chips "
        f"of the same kind build; {made['passages']:,} passages",
        f"step        {made['step_seconds']:.3f} s",
        f"refresh     {seconds(made['refresh_seconds'])} = {made['refresh_steps']:,.0f} steps "
        f"({parts})",
        f"staleness   {made['staleness_steps']:,.0f} steps on average; to refresh as often as "
        f"snapshots come takes a builder share of {made['share_to_refresh_every']:.2f}",
        f"index       {made['index_bytes'] / 1e9:,.1f} GB",
        f"run         {made['days']:.1f} days, {made['chip_hours']:,.0f} chip-hours",
    ]
    for limit in made["limits"]:
        state = "BREAKS at" if limit["part"] in made["broken"] else "holds to"
        lines += [f"{state:<11} {limit['passages']:.3g} passages: {limit['part']}"]
        lines += [f"            then: {limit['then']}"] if limit["part"] in made["broken"] else []
    share = made["assumed"]["share_of_roofline"]
    return [*lines, f"assumed     {share:.0%} of the compiled programs' roofline is reached"]


def seconds(value: float) -> str:
    """A time span in the unit that reads best."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s" if math.isfinite(value) else "never"
