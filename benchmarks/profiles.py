"""Where the time of a training step, or of the index builder's embedder, goes.

Command:  python benchmarks/profiles.py [--of=step] [--size=small] [--compute=bfloat16] [--json]
              [--trace=FOLDER]
Data:     none: pieces and lengths are drawn as in step.py
Output:   seconds of one run by `jax.profiler`, and the shares of its operations, by kind: products
          and what is fused into them, sums and maxima, exponentials and other elementwise work,
          copies and transposes, gathers and scatters; the ten longest of them; the trace itself
          under --trace, for TensorBoard or Perfetto
Time:     a minute

Time is that of each operation added up over threads; what no operation owns is not in it.
"""

import argparse
import collections
import gzip
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from step import PASSAGES, DrawnStore, DrawnText, sized

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.data.rows import passage_rows
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.retrieval.encoder import embed_function
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

LONGEST = 10
ROWS = 8  # of an embedding batch
KINDS = {  # kind -> what the name of the operation that JAX asked for ends with
    "products": ("dot_general",),
    "sums and maxima": ("reduce_sum", "reduce_max", "argmax", "cumsum"),
    "gathers and scatters": ("gather", "scatter", "scatter-add", "dynamic_slice"),
    "copies": ("transpose", "reshape", "concatenate", "copy", "convert_element_type", "slice"),
}
_OPERATION = re.compile(r"%([\w.\-]+) = (\S+) ([\w\-]+)\(.*?op_name=\"([^\"]*)\"")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of", choices=("step", "embed"), default="step")
    parser.add_argument("--size", default="small")
    parser.add_argument("--compute", default="bfloat16")
    parser.add_argument("--trace", help="folder that keeps the trace")
    parser.add_argument("--json", action="store_true", help="one line")
    arguments = parser.parse_args()
    runtime.start()
    config = sized(arguments.size)
    config.model.compute = arguments.compute
    program, run = {"step": of_step, "embed": of_embedder}[arguments.of](config_lib.check(config))
    run()
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.trace or folder
        with jax.profiler.trace(kept):
            run()
        spent = seconds_by_operation(Path(kept))
    report = {"of": arguments.of, "size": arguments.size, "compute": arguments.compute}
    report |= by_kind(spent, program)
    sys.stdout.write(json.dumps(report, indent=None if arguments.json else 1) + "\n")


def of_step(config: Any) -> tuple[str, Callable[[], None]]:
    """The compiled text of a packed training step, and a run of it."""
    source, store = DrawnText(config), DrawnStore()
    size = config.stages.realm.batch
    stage: Any = RealmStage(config, store, source, source, None)  # type: ignore[arg-type]
    hits = np.random.default_rng(2).integers(PASSAGES, size=(size, config.retrieval.candidates))
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    optimizer = make_optimizer(config.optimizer, stage.settings)
    kept = [make_state(stage.modules, optimizer, mesh, config.seed, {})]
    places = jax.tree.map(lambda leaf: leaf.sharding, kept[0])
    step = make_step(stage, optimizer, mesh, places, config.seed)
    batch = jax.device_put(stage._packed(1, source.batch(1, size), hits), batch_sharding(mesh))

    def run() -> None:
        kept[0], _ = jax.block_until_ready(step(kept[0], batch))

    return step.lower(kept[0], batch).compile().as_text(), run


def of_embedder(config: Any) -> tuple[str, Callable[[], None]]:
    """The same of a batch of passages to vectors."""
    store: Any = DrawnStore()
    embed: Any = embed_function(config.model.to_json(), store.vocabulary.size)
    stage: Any = RealmStage(config, store, *[DrawnText(config)] * 2, None)  # type: ignore[arg-type]
    parameters = jax.jit(stage.modules.init)(jax.random.key(0))["embedder"]
    rows = passage_rows(store, np.arange(ROWS), config.lengths.passage)

    def run() -> None:
        jax.block_until_ready(embed(parameters, rows))

    return embed.lower(parameters, rows).compile().as_text(), run


def seconds_by_operation(folder: Path) -> dict[str, float]:
    """Seconds of each operation of the compiled program in a trace."""
    (path,) = folder.rglob("*.trace.json.gz")
    spent: dict[str, float] = collections.Counter()
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        name = event.get("args", {}).get("hlo_op")
        if event.get("ph") == "X" and name:
            spent[name] += event["dur"] / 1e6
    return spent


def by_kind(spent: dict[str, float], program: str) -> dict[str, Any]:
    """Shares by kind, and the longest operations by what JAX asked for and the shape made."""
    asked = {name: (shape, asked) for name, shape, _, asked in _OPERATION.findall(program)}
    total = sum(spent.values())
    kinds: dict[str, float] = collections.Counter()
    longest: dict[str, float] = collections.Counter()
    for name, seconds in spent.items():
        shape, path = asked.get(name, ("", "unnamed"))
        last = path.rsplit("/", 1)[-1]
        kind = next((kind for kind, ends in KINDS.items() if last in ends), "elementwise")
        kinds["copies" if name.startswith(("copy", "transpose")) else kind] += seconds
        backward = "backward " if "transpose(" in path else ""
        longest[f"{backward}{last} to {shape.split('{')[0]}"] += seconds
    ordered = sorted(longest.items(), key=lambda item: -item[1])[:LONGEST]
    return {
        "seconds_of_operations": round(total, 3),
        "shares": {kind: round(own / total, 3) for kind, own in sorted(kinds.items())},
        "longest": {name: round(own / total, 3) for name, own in ordered},
    }


if __name__ == "__main__":
    main()
