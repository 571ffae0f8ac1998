"""The training step of REALM on real pieces: packed, padded, and as Hugging Face's classes run it.

Command:  python benchmarks/step.py [--quick] [--sizes=small,base] [--json] [--plot=FILE]
          two forms that must be held against each other, in turns in one process, median seconds
          by the clock and of the processor (base: two such have room in 24 GB, not three):
          python benchmarks/step.py --sizes=base --form="packed bf16" --form="torch bf16"
Data:     none: pieces are drawn, lengths as in WikiExtractor's English Wikipedia (see `QUANTILES`)
Needs:    the extra [bench] (torch, transformers 4.40.2); without it our own forms alone are timed
Output:   for each size: seconds of four queries (median of rounds in which the forms take turns;
          at base one form after the other, each in a process: they would not fit together), real
          pieces a second, `ratio_vs_torch` (float32 against float32), `ratio_vs_torch_bf16` (ours
          in bfloat16 against autocast), `ratio_vs_padded` (our own padded rows, same dtype),
          `padding_share` (of our streams), and a plot of the pieces a second
Time:     --quick (small size, three rounds) under five minutes on two cores; full half an hour

A step is forward, backward and AdamW, lengths 96/288/384, eight candidates, no dropout. All forms
and sizes have the same four queries, small in one step and base in four: the rows of one query are
long or short by chance. Peers get the same rows, padded to those lengths as their tokenizer pads
them, the null passage as a row like any other; they score the vocabulary at every piece, as that
class does.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from step_peers import Step, theirs
from support.padded import padded_batch, padded_realm_loss

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.data.masked_text import MaskedText
from realm_jax.data.rows import query_rows
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

SIZES = {  # layers, hidden, heads, queries a step
    "tiny": (1, 64, 2, 2),  # to see that it runs
    "small": (4, 256, 4, 4),
    "base": (12, 768, 12, 1),
}
# Every twentieth of the sorted lengths, in pieces, of 105,065 passages of 288 pieces out of 7,570
# long articles (titles and bodies), and of 2,000 masked sentences of them.
QUANTILES = {
    "body": "2 186 230 241 248 252 256 259 261 263 266 267 269 271 273 274 276 278 279 281 285",
    "title": "1 1 1 1 2 2 2 2 2 2 3 3 3 3 3 4 4 4 5 6 22",
    "query": "7 18 21 23 26 28 30 31 33 35 37 39 42 45 48 51 56 61 69 84 96",
    "masks": "1 1 1 1 1 1 1 1 1 2 2 2 2 2 3 3 3 3 4 5 9",
}
PASSAGES = 5000
PIECES = 30_522
WORDS = SimpleNamespace(pad=0, cls=101, sep=102, mask=103, size=PIECES)
QUERIES = 4  # in one step or in some, by size; each form's time is that of all of them
RATIOS = {  # seconds of one form over those of another
    "ratio_vs_padded": ("padded", "packed"),
    "ratio_vs_padded_bf16": ("padded bf16", "packed bf16"),
    "ratio_vs_torch": ("torch", "packed"),
    "ratio_of_bf16_vs_torch": ("torch", "packed bf16"),
    "ratio_vs_torch_bf16": ("torch bf16", "packed bf16"),
}
ALONE = ("base",)  # sizes of which six forms with their moments would need 25 GB
Forms = dict[str, Callable[[], Step]]  # what makes each


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one line")
    parser.add_argument("--plot", default="step.svg")
    parser.add_argument("--form", action="append", help="only this form; again for more")
    arguments = parser.parse_args()
    runtime.start()
    names = ["small"] if arguments.quick else arguments.sizes.split(",")
    rounds = 3 if arguments.quick else arguments.rounds
    if arguments.form:
        forms, _, _ = forms_of(names[0])
        only = {form: forms[form]() for form in arguments.form}
        sys.stdout.write(json.dumps(in_turns(only, rounds)) + "\n")
        return
    report = {name: measured(name, rounds) for name in names}
    bars({name: found["real_pieces_per_second"] for name, found in report.items()}, arguments.plot)
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Figures of one size."""
    forms, share, padded = forms_of(name)
    rows = [kind for one in padded for kind in (one.text.queries, one.passages, one.joint)]
    real = sum(int(kind.mask.sum()) for kind in rows)
    if name in ALONE:
        clock, processor = apart(name, forms, rounds)
    else:
        clock, processor = in_turns({form: make() for form, make in forms.items()}, rounds)
    places = sum(kind.ids.size for kind in rows)
    found = {
        "queries": QUERIES,
        "steps": len(padded),
        "real_pieces": real,
        "padding_share": round(share, 3),
        "padding_share_of_padded": round(1 - real / places, 3),
        "seconds": {form: round(taken, 3) for form, taken in clock.items()},
        "processor_seconds": {form: round(taken, 3) for form, taken in processor.items()},
        "real_pieces_per_second": {form: round(real / taken) for form, taken in clock.items()},
    }
    for ratio, (slow, quick) in RATIOS.items():
        if slow in clock and quick in clock:
            found[ratio] = round(clock[slow] / clock[quick], 2)
    return found


def forms_of(name: str) -> tuple[Forms, float, list[Any]]:
    """All forms of one size, the padding of the packed streams, and the padded batches."""
    config, store = sized(name), DrawnStore()
    source, size = DrawnText(config), config.stages.realm.batch
    shape = (QUERIES, config.retrieval.candidates)
    hits = np.random.default_rng(2).integers(PASSAGES, size=shape)
    parts = partition((source.batch(1, QUERIES), hits), size)
    padded = [padded_batch(config, store, *part) for part in parts]
    forms, share = ours(config, store, source, parts)
    return forms | theirs(config, padded, PIECES), share, padded


def partition(batch: Any, size: int) -> list[Any]:
    """A batch as batches of `size`."""
    starts = range(0, QUERIES, size)
    cut = lambda start: jax.tree.map(lambda leaf: leaf[start : start + size], batch)  # noqa: E731
    return [cut(start) for start in starts]


def sized(name: str) -> ConfigDict:
    """The paper's lengths at one of the sizes; no dropout, so that forms can be compared."""
    layers, hidden, heads, queries = SIZES[name]
    config = config_lib.default()
    config.model.update(layers=layers, hidden=hidden, heads=heads, mlp=4 * hidden, dropout=0.0)
    config.model.scan = False  # quicker on a CPU; peers have no loop either
    config.stages.realm.update(steps=1000, batch=queries)
    config.stages.realm.marginal = "released"
    return config


def drawn(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Lengths distributed as those of Wikipedia."""
    known = np.array(QUANTILES[kind].split(), float)
    shares = np.linspace(0, 1, len(known))
    return np.interp(rng.random(count), shares, known).round().astype(np.int64)


class DrawnStore:
    """What rows are made from, of a store of passages: pieces that mean nothing."""

    vocabulary = WORDS

    def __init__(self):
        rng = np.random.default_rng(0)
        titles, bodies = (drawn(kind, rng, PASSAGES) for kind in ("title", "body"))
        self._ends = np.cumsum(np.stack([titles, bodies], 1)).reshape(-1, 2)
        self._sizes = np.stack([titles, bodies], 1)
        self.flat = rng.integers(1000, PIECES, int(self._ends[-1, 1])).astype(np.uint16)

    def __len__(self) -> int:
        return PASSAGES

    def title_bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends in `flat`."""
        return self._ends[rows, 0] - self._sizes[rows, 0], self._ends[rows, 0]

    def body_bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends in `flat`."""
        return self._ends[rows, 0], self._ends[rows, 1]


class DrawnText:
    """Masked sentences that mean nothing."""

    def __init__(self, config: ConfigDict):
        self._lengths = config.lengths

    def batch(self, step: int, size: int, batch_rows: np.ndarray | None = None) -> MaskedText:
        """As `MaskedTextSource.batch`, of one process."""
        assert batch_rows is None or len(batch_rows) == size
        rng, most = np.random.default_rng([1, step]), self._lengths.masks
        lengths = drawn("query", rng, size)
        masks = np.minimum(drawn("masks", rng, size), lengths - 2)
        rows = query_rows(
            [rng.integers(1000, PIECES, length - 2) for length in lengths],
            self._lengths.query,
            WORDS,
        )
        weights = (np.arange(most) < masks[:, None]).astype(np.float32)
        positions = ((1 + np.arange(most)) * weights).astype(np.int32)
        targets = (rng.integers(1000, PIECES, weights.shape) * weights).astype(np.int32)
        np.put_along_axis(rows.ids, positions, np.where(weights > 0, WORDS.mask, WORDS.cls), 1)
        nothing = np.full(size, -1)
        return MaskedText(rows, positions, targets, weights, nothing, nothing)


def ours(
    config: ConfigDict, store: DrawnStore, source: DrawnText, parts: list[tuple[MaskedText, Any]]
) -> tuple[Forms, float]:
    """Packed and padded rows in both precisions; and the padding of the streams."""
    forms: Forms = {}
    for dtype, suffix in (("float32", ""), ("bfloat16", " bf16")):
        own = ConfigDict(config.to_dict())
        own.model.compute = dtype
        stage = RealmStage(own, store, source, source, None)
        packed = [stage._packed(1, *part) for part in parts]
        forms[f"packed{suffix}"] = partial(trained, own, stage, packed)
        padded = PaddedStage(own, store, source, source, None)
        rows = [padded_batch(own, store, *part) for part in parts]
        forms[f"padded{suffix}"] = partial(trained, own, padded, rows)
    blocks = [block for one in packed for block in (*one.embedded.blocks, *one.read.blocks)]
    masks = [block.mask for block in blocks]
    return forms, 1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)


class PaddedStage(RealmStage):
    """REALM with every row as wide as the longest may be."""

    def loss(self, networks: Any, batch: Any, key: Any) -> Any:
        """See `support.padded`."""
        return padded_realm_loss(networks, batch, self._config.stages.realm.marginal)


def trained(config: ConfigDict, stage: RealmStage, batches: list[Any]) -> Step:
    """A step of ours on each of these batches, again and again."""
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    optimizer = make_optimizer(config.optimizer, stage.settings)
    state = make_state(stage.modules, optimizer, mesh, config.seed, {})
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    function = make_step(stage, optimizer, mesh, places, config.seed)
    placed = [jax.device_put(batch, batch_sharding(mesh)) for batch in batches]
    kept = [state]

    def step() -> None:
        for batch in placed:
            kept[0], metrics = function(kept[0], batch)
            jax.block_until_ready((kept[0], metrics))

    return step


def apart(name: str, forms: Forms, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """As `in_turns`, one form after the other, each in a process of its own."""
    clock: dict[str, float] = {}
    processor: dict[str, float] = {}
    for form in forms:
        command = [sys.executable, __file__, f"--sizes={name}", f"--rounds={rounds}"]
        done = subprocess.run(
            [*command, f"--form={form}"], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(f"{name}, {form}: ended with {done.returncode} (-9: memory)\n")
            continue
        for kept, taken in zip((clock, processor), json.loads(done.stdout), strict=True):
            kept.update(taken)
    return clock, processor


def in_turns(steps: dict[str, Step], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of each by the clock and of the processor; the first round does not count.

    Forms take turns, so that other load falls on all.
    """
    taken: dict[str, list[tuple[float, float]]] = {form: [] for form in steps}
    for number in range(rounds + 1):
        for form, step in steps.items():
            began, busy = time.perf_counter(), time.process_time()
            step()
            if number:
                spent = time.perf_counter() - began, time.process_time() - busy
                taken[form].append(spent)
    clock, processor = (
        {form: statistics.median(own[kind] for own in spent) for form, spent in taken.items()}
        for kind in (0, 1)
    )
    return clock, processor


def bars(speeds: dict[str, dict[str, int]], path: str) -> None:
    """Bars of the real pieces a second, by size and form."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, len(speeds), figsize=(5 * len(speeds), 3.5), squeeze=False)
    for axis, (name, own) in zip(axes[0], speeds.items(), strict=True):
        axis.bar_label(axis.barh(list(own), list(own.values())))
        axis.invert_yaxis()
        axis.set(title=name, xlabel="real pieces a second")
    plt.tight_layout()
    plt.savefig(path)


if __name__ == "__main__":
    main()
