"""Seconds of a REALM training step: packed rows, padded rows, and Hugging Face's REALM classes.

Command:  python benchmarks/step.py [--quick] [--sizes=small,base] [--json] [--plot=FILE]
          only two variants, in turns in one process (three of size base do not fit in 24 GB):
          python benchmarks/step.py --sizes=base --form="packed bf16" --form="torch bf16"
Data:     none: tokens are random, with the lengths of English Wikipedia (`random_text.QUANTILES`)
Needs:    the extra [bench] (torch, transformers 4.40.2); without it only our variants are timed
Output:   for each size: seconds for four queries (median of rounds in which the variants take
          turns; at size base each variant runs in a separate process, to fit in memory),
          non-padding tokens per second, `ratio_vs_torch` (float32 / float32),
          `ratio_vs_torch_bf16` (our bfloat16 / autocast), `ratio_vs_padded` (our padded rows, same
          dtype), `padding_share` of the packed rows, and a bar plot of the tokens per second
Time:     --quick (size small, three rounds) under five minutes on two cores; full half an hour

A step is forward, backward and AdamW with lengths 96/288/384, eight candidates and no dropout. All
variants and sizes get the same four queries, because queries differ in length: size small runs them
in one step, size base in four. Hugging Face gets the same rows, padded to these lengths as its
tokenizer pads them. The null passage is one of its rows. It computes vocabulary logits at every
position, as its class does.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import tests_path  # noqa: F401 - before `support`
from command_line import make_parser, write_report
from ml_collections import ConfigDict
from random_text import PASSAGES, PIECES, RandomStore, RandomText, sized_config
from step_peers import Step, torch_variants
from support.padded import padded_batch, padded_realm_loss
from timing import plot_speeds, time_in_turns
from training import packed_batches

from realm_jax import runtime
from realm_jax.data.masked_text import MaskedText
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

QUERIES = 4  # all variants process this many, in one step or in several
RATIOS = {  # seconds of the first variant over seconds of the second
    "ratio_vs_padded": ("padded", "packed"),
    "ratio_vs_padded_bf16": ("padded bf16", "packed bf16"),
    "ratio_vs_torch": ("torch", "packed"),
    "ratio_of_bf16_vs_torch": ("torch", "packed bf16"),
    "ratio_vs_torch_bf16": ("torch bf16", "packed bf16"),
}
SEPARATE = ("base",)  # sizes of which all variants together would need 25 GB
Variants = dict[str, Callable[[], Step]]  # name -> function that builds the step


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--plot", default="step.svg")
    parser.add_argument("--form", action="append", help="only this variant; may be repeated")
    arguments = parser.parse_args()
    runtime.start()
    sizes = ["small"] if arguments.quick else arguments.sizes.split(",")
    rounds = 3 if arguments.quick else arguments.rounds
    if arguments.form:
        variants, _, _ = all_variants(sizes[0])
        chosen = {name: variants[name]() for name in arguments.form}
        sys.stdout.write(json.dumps(time_in_turns(chosen, rounds)) + "\n")
        return
    report = {size: measure(size, rounds) for size in sizes}
    speeds = {size: found["real_pieces_per_second"] for size, found in report.items()}
    plot_speeds(speeds, arguments.plot)
    write_report(report, arguments)


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Times all variants of one size."""
    variants, padding_share, padded = all_variants(size)
    rows = [kind for one in padded for kind in (one.text.queries, one.passages, one.joint)]
    real = sum(int(kind.mask.sum()) for kind in rows)
    if size in SEPARATE:
        wall, cpu = time_in_processes(size, variants, rounds)
    else:
        wall, cpu = time_in_turns({name: make() for name, make in variants.items()}, rounds)
    positions = sum(kind.ids.size for kind in rows)
    found = {
        "queries": QUERIES,
        "steps": len(padded),
        "real_pieces": real,
        "padding_share": round(padding_share, 3),
        "padding_share_of_padded": round(1 - real / positions, 3),
        "seconds": {name: round(seconds, 3) for name, seconds in wall.items()},
        "processor_seconds": {name: round(seconds, 3) for name, seconds in cpu.items()},
        "real_pieces_per_second": {name: round(real / seconds) for name, seconds in wall.items()},
    }
    for ratio, (slow, quick) in RATIOS.items():
        if slow in wall and quick in wall:
            found[ratio] = round(wall[slow] / wall[quick], 2)
    return found


def all_variants(size: str) -> tuple[Variants, float, list[Any]]:
    """Returns the variants, the padding share of the packed rows, and the padded batches."""
    config, store = sized_config(size), RandomStore()
    source, batch_size = RandomText(config), config.stages.realm.batch
    shape = (QUERIES, config.retrieval.candidates)
    hits = np.random.default_rng(2).integers(PASSAGES, size=shape)
    parts = split_batch((source.batch(1, QUERIES), hits), batch_size)
    padded = [padded_batch(config, store, *part) for part in parts]
    variants, padding_share = jax_variants(config, store, source, parts)
    return variants | torch_variants(config, padded, PIECES), padding_share, padded


def split_batch(batch: Any, size: int) -> list[Any]:
    """Splits a batch (pytree with leading axis `QUERIES`) into batches of `size`."""
    starts = range(0, QUERIES, size)
    cut = lambda start: jax.tree.map(lambda leaf: leaf[start : start + size], batch)  # noqa: E731
    return [cut(start) for start in starts]


def jax_variants(
    config: ConfigDict, store: RandomStore, source: RandomText, parts: list[tuple[MaskedText, Any]]
) -> tuple[Variants, float]:
    """Returns packed and padded steps in both dtypes, and the padding share of the packed rows."""
    variants: Variants = {}
    for dtype, suffix in (("float32", ""), ("bfloat16", " bf16")):
        typed = ConfigDict(config.to_dict())
        typed.model.compute = dtype
        stage = RealmStage(typed, store, source, source, None)
        packed = packed_batches(stage, typed, store, source, parts)
        variants[f"packed{suffix}"] = partial(compiled_step, typed, stage, packed)
        padded = PaddedStage(typed, store, source, source, None)
        rows = [padded_batch(typed, store, *part) for part in parts]
        variants[f"padded{suffix}"] = partial(compiled_step, typed, padded, rows)
    blocks = [block for one in packed for block in (*one.embedded.blocks, *one.read.blocks)]
    masks = [block.mask for block in blocks]
    return variants, 1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)


class PaddedStage(RealmStage):
    """REALM pre-training in which every row is padded to the greatest length."""

    def loss(self, networks: Any, batch: Any, key: Any) -> Any:
        """See `support.padded`."""
        return padded_realm_loss(networks, batch, self._config.stages.realm.marginal)


def compiled_step(config: ConfigDict, stage: RealmStage, batches: list[Any]) -> Step:
    """Returns a function that runs one training step on each of the batches."""
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    optimizer = make_optimizer(config.optimizer, stage.settings)
    params = initial_params(config, stage.modules, {}, mesh)
    state = make_state(stage.modules, optimizer, mesh, params)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    function = make_step(stage, optimizer, mesh, shardings, config.seed)
    on_device = [jax.device_put(batch, batch_sharding(mesh)) for batch in batches]
    current = [state]

    def step() -> None:
        for batch in on_device:
            current[0], metrics = function(current[0], batch)
            jax.block_until_ready((current[0], metrics))

    return step


def time_in_processes(
    size: str, variants: Variants, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """As `time_in_turns`, but runs one variant after the other, each in its own process."""
    wall: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for name in variants:
        command = [sys.executable, __file__, f"--sizes={size}", f"--rounds={rounds}"]
        done = subprocess.run(
            [*command, f"--form={name}"], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(f"{size}, {name}: exit code {done.returncode} (-9: out of memory)\n")
            continue
        for kept, seconds in zip((wall, cpu), json.loads(done.stdout), strict=True):
            kept.update(seconds)
    return wall, cpu


if __name__ == "__main__":
    main()
