"""Plans a run: from compile reports to step time, refresh time, staleness, memory and chip-hours.

Arithmetic only. The compiled programs give a lower bound of the time (`roofline_seconds`). How much
slower a real run is, is one of the assumptions in `Assumptions`, which are part of the plan.
"""

import math
from dataclasses import asdict
from typing import Any

from ml_collections import ConfigDict

from realm_jax.errors import InputError
from realm_jax.planning.chips import Slice
from realm_jax.planning.limits import (
    Assumptions,
    index_row_bytes,
    limits,
    placement,
    segments,
)
from realm_jax.planning.run_time import (
    evaluation_seconds,
    pacing,
    stage_hours,
    step_seconds,
    wait_hours,
)

SHARED = "a file system that all machines mount"


def plan(
    trainer: Slice,
    passages: int,
    builder_share: float,
    config: ConfigDict,
    reports: dict[str, dict[str, Any]],
    assumed: Assumptions | None = None,
) -> dict[str, Any]:
    """Plans a run.

    Args:
      trainer: slice of the trainer; the builder's chips are added to it.
      passages: N, size of the knowledge corpus.
      builder_share: share of the builder's chips among all chips, between 0 and 1 (the paper: 16
        of 80).
      config: of the run.
      reports: compile reports by program (`reference_reports.PROGRAMS`), for this kind of chip.
      assumed: assumptions; None is the defaults.

    Returns:
      JSON: seconds, steps, bytes and hours by name; `limits`, lowest first; `breaks_first` is the
      first of them.

    Raises:
      InputError: an empty corpus, or a share outside 0 to 1.
      ConfigError: a `refresh.mode` that has no model here.
    """
    if passages < 1:
        raise InputError(
            "the corpus has no passages", where="--passages", expected="at least 1", found=passages
        )
    assumed = assumed or Assumptions()
    chips = builder_chips(trainer, builder_share)
    step = step_seconds(reports["realm/train"], trainer.chips, assumed)
    parts = refresh_parts(passages, chips, trainer, config, reports["embed"], assumed)
    refresh = sum(parts.values())
    found = limits(passages, step, refresh, trainer, config, reports["realm/train"], assumed)
    evaluation = evaluation_seconds(reports["realm/evaluate"], trainer.chips, config, assumed)
    placed = placement(passages, trainer, config, assumed)
    stages = stage_hours(trainer, config, reports, assumed)
    pace = pacing(refresh / step, config)
    waits = wait_hours(refresh, step, pace, config)
    hours = sum(stages.values()) + waits
    return {
        "topology": trainer.name,
        "passages": passages,
        "train_chips": trainer.chips,
        "builder_chips": chips,
        "step_seconds": step,
        "evaluation_seconds": evaluation,
        "first_step_seconds": refresh,
        "refresh_seconds": refresh,
        "refresh_parts": parts,
        "refresh_steps": refresh / step,
        "share_to_refresh_every": share_for(
            refresh / step, float(config.refresh.every), builder_share
        ),
        "staleness_steps": pace.staleness,
        "index_bytes": passages * index_row_bytes(config),
        "segments": segments(passages, config),
        "placement": placed,
        "corpus_bytes": passages * assumed.corpus_bytes,
        "corpus_on": "local disks" if on_local_disks(passages, assumed) else SHARED,
        "store": store_traffic(
            passages, trainer.hosts, builder_machines(trainer, chips), placed, config
        ),
        "stage_hours": stages,
        "wait_hours": waits,
        "days": hours / 24,
        "chip_hours": hours * (trainer.chips + chips),
        "breaks_first": found[0].part,
        "breaks_at_passages": found[0].passages,
        "broken": [limit.part for limit in found if limit.passages < passages],
        "limits": [asdict(limit) for limit in found],
        "assumed": asdict(assumed),
    }


def store_traffic(
    passages: int, hosts: int, builders: int, placed: str, config: ConfigDict
) -> dict[str, float]:
    """Requests and bytes of one refresh on an object store.

    Each shard of vectors is written. Worker 0 reads the shards of the other workers if the index
    has one segment; otherwise finished segments are written, and read by worker 0. The index, with
    the vectors in float16, is written once and read by each trainer host; placed on `hosts`, each
    reads a part of the searcher. Snapshot, manifests, pointers and listings add less than a per
    cent and are not counted.

    Args:
      passages: N.
      hosts: of the trainer.
      builders: machines of the builder; each has one worker.
      placed: see `placement`.
      config: of the run.
    """
    shards, width = -(-passages // config.builder.shard), config.model.embedding
    vectors, half, searcher = 4.0 * width, 2.0 * width, index_row_bytes(config)
    read = hosts * half + (searcher if placed == "hosts" else hosts * searcher)
    moves = 1 + (builders - 1) / builders  # of a shard
    requests, moved = moves * shards, moves * vectors + searcher + half
    if segments(passages, config) > 1:
        requests, moved = float(shards), vectors + 3 * (searcher + half)
    return {"requests": requests, "bytes": passages * (moved + read)}


def on_local_disks(passages: int, assumed: Assumptions) -> bool:
    """Whether the corpus fits on the disk of a machine."""
    return passages * assumed.corpus_bytes <= assumed.disk_bytes


def builder_chips(trainer: Slice, share: float) -> int:
    """Number of builder chips that are `share` of all chips, when `trainer` trains.

    Raises:
      InputError: a share outside 0 to 1.
    """
    if not 0 < share < 1:
        raise InputError(
            "the share of builder chips is out of range",
            where="--builder_share",
            expected="more than 0 and less than 1; the paper uses 16 of 80 chips, 0.2",
            found=share,
        )
    return max(1, round(trainer.chips * share / (1 - share)))


def builder_machines(trainer: Slice, chips: int) -> int:
    """Machines of the builder, which have the trainer's kind of chip."""
    return -(-chips // trainer.chip.node_chips)


def embedding_seconds(report: dict[str, Any], passages: int, chips: int) -> float:
    """Lower bound of the seconds in which `chips` chips embed a corpus, from an `embed` report."""
    chip_seconds = report["roofline_seconds"] * report["chips"] / report["rows"]
    return passages * chip_seconds / chips


def refresh_parts(
    passages: int,
    chips: int,
    trainer: Slice,
    config: ConfigDict,
    report: dict[str, Any],
    assumed: Assumptions,
) -> dict[str, float]:
    """Seconds of one refresh by phase; all passages have the maximum length.

    Several builder machines make different segments at the same time; worker 0 then reads and
    writes all of them. A corpus on a shared file system is read by all builder machines together
    (`corpus`).
    """
    embed = embedding_seconds(report, passages, chips) / assumed.share_of_roofline
    on_mesh, count = config.search.kind == "mesh", segments(passages, config)
    machines = min(count, builder_machines(trainer, chips))
    build = 0.0 if on_mesh else passages * assumed.build_seconds / assumed.build_threads / machines
    stored = passages * index_row_bytes(config) / assumed.bucket_bandwidth
    gathered = stored / machines + stored if count > 1 else 0.0
    spread = placement(passages, trainer, config, assumed) == "hosts"
    read = stored / trainer.hosts if on_mesh or spread else stored
    parts = {"embed": embed, "build": build, "write": stored + gathered, "read": read}
    if not on_local_disks(passages, assumed):
        parts["corpus"] = passages * assumed.piece_bytes / assumed.bucket_bandwidth / machines
    return parts


def share_for(refresh_steps: float, target: float, builder_share: float) -> float:
    """The builder share that refreshes in `target` steps, if `builder_share` takes `refresh_steps`.

    The trainer keeps its number of chips.
    """
    builders = builder_share / (1 - builder_share) * refresh_steps / target
    return builders / (1 + builders)


def plan_lines(planned: dict[str, Any]) -> list[str]:
    """Formats a plan as lines of text."""
    p = planned
    parts = ", ".join(f"{name} {seconds(value)}" for name, value in p["refresh_parts"].items())
    stages = ", ".join(f"{name} {seconds(3600 * h)}" for name, h in p["stage_hours"].items())
    lines = [
        f"{p['topology']}: {p['train_chips']} chips train, {p['builder_chips']} chips of the same "
        f"kind build the index; {p['passages']:,} passages",
        f"step        {p['step_seconds']:.3f} s; an evaluation {seconds(p['evaluation_seconds'])}; "
        f"the first step waits {seconds(p['first_step_seconds'])} for the first index",
        f"refresh     {seconds(p['refresh_seconds'])} = {p['refresh_steps']:,.0f} steps ({parts})",
        f"staleness   {p['staleness_steps']:,.0f} steps on average; one refresh per snapshot needs "
        f"a builder share of {p['share_to_refresh_every']:.2f}",
        f"index       {p['index_bytes'] / 1e9:,.1f} GB; a refresh moves "
        f"{p['store']['bytes'] / 1e9:,.1f} GB in {p['store']['requests']:,.0f} requests through an "
        "object store",
        f"segments    {p['segments']:,}, made one after the other by each builder machine; they "
        f"need search.placement={p['placement']}",
        f"corpus      {p['corpus_bytes'] / 1e9:,.0f} GB on {p['corpus_on']}",
        f"run         {p['days']:.1f} days, {p['chip_hours']:,.0f} chip-hours ({stages}, waits for "
        f"indexes {seconds(3600 * p['wait_hours'])})",
    ]
    for limit in p["limits"]:
        broken = limit["part"] in p["broken"]
        state = "BREAKS at" if broken else "holds to"
        lines += [f"{state:<11} {limit['passages']:.3g} passages: {limit['part']}"]
        lines += [f"            instead: {limit['then']}"] if broken else []
    share = p["assumed"]["share_of_roofline"]
    return [*lines, f"assumed     real programs reach {share:.0%} of the roofline"]


def seconds(value: float) -> str:
    """Formats a duration in its largest fitting unit."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s" if math.isfinite(value) else "never"
