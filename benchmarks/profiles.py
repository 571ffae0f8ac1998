"""Time of each kind of operation in a training step or in the index builder's encoder.

Command:  python benchmarks/profiles.py [--of=step] [--size=small] [--compute=bfloat16] [--json]
              [--trace=FOLDER]
Data:     none: tokens and lengths are random, as in step.py
Output:   seconds of one run from `jax.profiler`; shares of the kinds of operations (matrix products
          and what is fused into them, reductions, elementwise operations, copies and transposes,
          gathers and scatters); the ten longest operations; with --trace also the trace itself,
          for TensorBoard or Perfetto
Time:     a minute

Seconds are summed over threads. Time outside of any operation is not included.
"""

import collections
import gzip
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from command_line import make_parser, write_report
from random_text import PASSAGES, RandomStore, RandomText, sized_config
from training import packed_batches

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.data.rows import passage_rows
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.retrieval.encoder import Encoder
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

LONGEST = 10
ROWS = 8  # passages in an embedding batch
KINDS = {  # kind -> JAX primitives; every other primitive is elementwise
    "products": ("dot_general",),
    "sums and maxima": ("reduce_sum", "reduce_max", "argmax", "cumsum"),
    "gathers and scatters": ("gather", "scatter", "scatter-add", "dynamic_slice"),
    "copies": ("transpose", "reshape", "concatenate", "copy", "convert_element_type", "slice"),
}
_OPERATION = re.compile(r"%([\w.\-]+) = (\S+) ([\w\-]+)\(.*?op_name=\"([^\"]*)\"")


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__)
    parser.add_argument("--of", choices=("step", "embed"), default="step")
    parser.add_argument("--size", default="small")
    parser.add_argument("--compute", default="bfloat16")
    parser.add_argument("--trace", help="folder in which the trace is kept")
    arguments = parser.parse_args()
    runtime.start()
    config = sized_config(arguments.size)
    config.model.compute = arguments.compute
    program = {"step": training_step, "embed": encoder}[arguments.of]
    hlo, run = program(config_lib.check(config))
    run()
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.trace or folder
        with jax.profiler.trace(kept):
            run()
        seconds = seconds_by_operation(Path(kept))
    report = {"of": arguments.of, "size": arguments.size, "compute": arguments.compute}
    write_report(report | by_kind(seconds, hlo), arguments)


def training_step(config: Any) -> tuple[str, Callable[[], None]]:
    """Returns the HLO text of a packed training step and a function that runs it."""
    source, store = RandomText(config), RandomStore()
    size = config.stages.realm.batch
    stage: Any = RealmStage(config, store, source, source, None)  # type: ignore[arg-type]
    hits = np.random.default_rng(2).integers(PASSAGES, size=(size, config.retrieval.candidates))
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    optimizer = make_optimizer(config.optimizer, stage.settings)
    params = initial_params(config, stage.modules, {}, mesh)
    current = [make_state(stage.modules, optimizer, mesh, params)]
    shardings = jax.tree.map(lambda leaf: leaf.sharding, current[0])
    step = make_step(stage, optimizer, mesh, shardings, config.seed)
    [packed] = packed_batches(stage, config, store, source, [(source.batch(1, size), hits)])
    batch = jax.device_put(packed, batch_sharding(mesh))

    def run() -> None:
        current[0], _ = jax.block_until_ready(step(current[0], batch))

    return step.lower(current[0], batch).compile().as_text(), run


def encoder(config: Any) -> tuple[str, Callable[[], None]]:
    """Returns the HLO text of the passage encoder and a function that runs it."""
    store: Any = RandomStore()
    embed: Any = Encoder(config, store.vocabulary.size).program
    stage: Any = RealmStage(config, store, *[RandomText(config)] * 2, None)  # type: ignore[arg-type]
    params = jax.jit(stage.modules.init)(jax.random.key(0))["embedder"]
    rows = passage_rows(store, np.arange(ROWS), config.lengths.passage)

    def run() -> None:
        jax.block_until_ready(embed(params, rows))

    return embed.lower(params, rows).compile().as_text(), run


def seconds_by_operation(folder: Path) -> dict[str, float]:
    """Reads the newest trace in a folder and returns the seconds of each HLO operation."""
    path = max(folder.rglob("*.trace.json.gz"), key=lambda one: one.stat().st_mtime_ns)
    seconds: dict[str, float] = collections.Counter()
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        name = event.get("args", {}).get("hlo_op")
        if event.get("ph") == "X" and name:
            seconds[name] += event["dur"] / 1e6
    return seconds


def by_kind(seconds: dict[str, float], hlo: str) -> dict[str, Any]:
    """Sums seconds by kind; the longest operations are named by JAX primitive and output shape."""
    origins = {name: (shape, origin) for name, shape, _, origin in _OPERATION.findall(hlo)}
    total = sum(seconds.values())
    kinds: dict[str, float] = collections.Counter()
    longest: dict[str, float] = collections.Counter()
    for name, spent in seconds.items():
        shape, origin = origins.get(name, ("", "unnamed"))
        primitive = origin.rsplit("/", 1)[-1]
        kind = next((kind for kind, names in KINDS.items() if primitive in names), "elementwise")
        kinds["copies" if name.startswith(("copy", "transpose")) else kind] += spent
        backward = "backward " if "transpose(" in origin else ""
        longest[f"{backward}{primitive} to {shape.split('{')[0]}"] += spent
    ordered = sorted(longest.items(), key=lambda item: -item[1])[:LONGEST]
    return {
        "seconds_of_operations": round(total, 3),
        "shares": {kind: round(spent / total, 3) for kind, spent in sorted(kinds.items())},
        "longest": {name: round(spent / total, 3) for name, spent in ordered},
    }


if __name__ == "__main__":
    main()
