r"""One GPU: speed of the REALM step and of the embedder, with each kind of attention, and PyTorch.

Command:  XLA_FLAGS=--xla_gpu_autotune_level=0 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5 \
              python benchmarks/accelerator.py [--quick] [--json] [--size=base] [--kind=xla]
Data:     none: tokens are random, with the lengths of English Wikipedia (`random_text.QUANTILES`)
Needs:    a GPU; for the comparison also torch and transformers (any version with BERT). The
          variable leaves half of the memory to PyTorch
Output:   for the step and for the embedder: milliseconds (median of rounds in which the variants
          take turns), the model-FLOPs utilisation (`mfu`) and `ratio_vs_torch`; whether two runs of
          the same steps give the same bits; loss and gradient norm of the first step of each kind;
          the rate of a bfloat16 product of 8192 x 8192 matrices; three reports in turn
Time:     not known: on an H100, with autotuning, it had not ended after four minutes. XLA_FLAGS
          above turns autotuning off; each part is printed when it is measured

BERT-base in bfloat16, lengths 96/288/384, eight candidates, no dropout. A step is forward, backward
and AdamW. The FLOPs of `mfu` are those of non-padding tokens, without recomputation and without
positions that the last layer need not compute; PyTorch, which computes them, gets the same count.
The peak is that of the product measured in the same run. Ours packs rows; PyTorch gets padded rows,
scaled dot-product attention and autocast, and is not compiled.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tests_path  # noqa: F401 - before `support`
from accelerator_peer import torch_embedder, torch_step
from command_line import make_parser, write_report
from ml_collections import ConfigDict
from random_text import PASSAGES, PIECES, RandomStore, RandomText, sized_config
from support.padded import padded_batch
from timing import time_in_turns
from training import packed_batches

from realm_jax import config as config_lib
from realm_jax import runtime
from realm_jax.data.rows import passage_rows
from realm_jax.models.modules import Modules
from realm_jax.parallel.sharding import batch_sharding, make_mesh
from realm_jax.planning.flops import embedding_head_flops, encoder_flops
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.realm_stage import RealmStage
from realm_jax.trainer.state import make_state
from realm_jax.trainer.step import make_step

KINDS = ("xla", "cudnn")  # values of model.attention
QUERIES, EMBEDDED = 8, 512  # per step; passages per call of the embedder
PRODUCT = 8192
COMPARED = ("loss", "gradient_norm")  # metrics of the first step, in the order of the kinds
Step = Callable[[], Any]


def main() -> None:
    """Measures and prints."""
    parser = make_parser(__doc__, quick=True)
    parser.add_argument("--size", default="base")
    parser.add_argument("--kind", action="append", help="of attention; may be repeated")
    arguments = parser.parse_args()
    runtime.start_interruptible()
    rounds, config = 3 if arguments.quick else 9, gpu_config(arguments.size)
    kinds = arguments.kind or list(KINDS)
    peak = product_rate()
    report = {"device": jax.devices()[0].device_kind, "product_tflops": round(peak / 1e12)}
    write_report(report, arguments)
    for name, measure in (("embedder", measure_embedder), ("step", measure_step)):
        write_report({name: measure(config, kinds, peak, rounds)}, arguments)
        sys.stdout.flush()


def measure_step(config: ConfigDict, kinds: list[str], peak: float, rounds: int) -> dict[str, Any]:
    """Times the training step, and repeats it from the same start."""
    drawn = RandomText(config).batch(1, QUERIES)
    shape = (QUERIES, config.retrieval.candidates)
    hits = np.random.default_rng(2).integers(PASSAGES, size=shape)
    padded = padded_batch(config, RandomStore(), drawn, hits)
    steps = {kind: RealmSteps(with_attention(config, kind), drawn, hits) for kind in kinds}
    first = {kind: jax.device_get(step.run()) for kind, step in steps.items()}
    same = {kind: step.same_bits_twice() for kind, step in steps.items()}
    variants = {kind: step.run for kind, step in steps.items()}
    variants |= torch_step(config, padded, PIECES)
    found = compared(variants, step_flops(padded, config), peak, rounds)
    metrics = {name: [first[kind][name].item() for kind in kinds] for name in COMPARED}
    return found | {"same_bits_twice": same, "first_step": metrics}


def measure_embedder(
    config: ConfigDict, kinds: list[str], peak: float, rounds: int
) -> dict[str, Any]:
    """Times the embedding of padded passages."""
    ids = np.random.default_rng(3).integers(PASSAGES, size=EMBEDDED)
    rows = passage_rows(RandomStore(), ids, config.lengths.passage)
    variants = {kind: embedder(with_attention(config, kind), rows) for kind in kinds}
    variants |= torch_embedder(config, rows, PIECES)
    return compared(variants, passage_flops(config, rows.mask).sum(), peak, rounds)


def gpu_config(size: str) -> ConfigDict:
    """The paper's lengths, bfloat16, and layers in a loop, which compile quickly."""
    config = sized_config(size)
    config.model.update(compute="bfloat16", scan=True)
    config.stages.realm.batch = QUERIES
    return config


def compared(variants: dict[str, Step], flops: float, peak: float, rounds: int) -> dict[str, Any]:
    """Times the variants in turns; `flops` are those of one call."""
    seconds, _ = time_in_turns(variants, rounds)
    found = {
        name: {"ms": round(1e3 * one, 2), "mfu": round(flops / one / peak, 3)}
        for name, one in seconds.items()
    }
    if "torch" in seconds:
        for name, one in seconds.items():
            found[name]["ratio_vs_torch"] = round(seconds["torch"] / one, 2)
    return found


def product_rate() -> float:
    """FLOPs per second of a bfloat16 product of two square matrices; small ones on a CPU."""
    size = 256 if jax.default_backend() == "cpu" else PRODUCT
    a, b = jax.random.normal(jax.random.key(0), (2, size, size), jnp.bfloat16)
    product = jax.jit(lambda a, b: a @ b)
    repeated = lambda: jax.block_until_ready([product(a, b) for _ in range(20)])  # noqa: E731
    seconds, _ = time_in_turns({"product": repeated}, 5)
    return 20 * 2.0 * size**3 / seconds["product"]


def with_attention(config: ConfigDict, kind: str) -> ConfigDict:
    """The config with one kind of attention."""
    typed = ConfigDict(config.to_dict())
    typed.model.attention = kind
    return config_lib.check(typed)


class RealmSteps:
    """The training step of the package on one batch of packed rows."""

    def __init__(self, config: ConfigDict, drawn: Any, hits: np.ndarray):
        store, text = RandomStore(), RandomText(config)
        stage = RealmStage(config, store, text, text, None)
        mesh = make_mesh(config.mesh, jax.devices()[:1])
        optimizer = make_optimizer(config.optimizer, stage.settings)
        params = jax.device_get(initial_params(config, stage.modules, {}, mesh))
        self._start = partial(make_state, stage.modules, optimizer, mesh, params)
        self._state = self._start()
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self._state)
        self._function = make_step(stage, optimizer, mesh, shardings, config.seed)
        batch = packed_batches(stage, config, store, text, [(drawn, hits)])[0]
        self._batch = jax.device_put(batch, batch_sharding(mesh))

    def run(self) -> Any:
        """Runs one step and returns its metrics."""
        self._state, metrics = self._function(self._state, self._batch)
        return jax.block_until_ready(metrics)

    def same_bits_twice(self) -> bool:
        """Whether five steps from the start give the same metrics, bit for bit, a second time."""
        metrics = []
        for _ in range(2):
            self._state = self._start()
            metrics.append(jax.device_get([self.run() for _ in range(5)]))
        return all(jax.tree.leaves(jax.tree.map(np.array_equal, *metrics)))


def embedder(config: ConfigDict, rows: Any) -> Step:
    """The passage embedder on padded rows."""
    modules = Modules(config.model, PIECES, ("embedder",))
    params = jax.jit(modules.init)(jax.random.key(0))
    on_device = jax.device_put(tuple(rows))
    embed = jax.jit(lambda params, rows: modules.bind(params).embedder.embed(*rows))
    return lambda: jax.block_until_ready(embed(params, on_device))


def step_flops(padded: Any, config: ConfigDict) -> float:
    """FLOPs of forward and backward of a batch, on non-padding tokens."""
    model, masks = config.model, padded.text.weights.sum()
    lengths = flat(padded.joint.mask).sum(-1)
    read = encoder_flops(model, 1, lengths, config.lengths.masks).sum()
    slots = masks * config.retrieval.candidates
    read += 2.0 * slots * (model.hidden**2 + model.hidden * PIECES)
    embedded = (padded.text.queries, padded.passages)
    return 3 * (read + sum(passage_flops(config, flat(rows.mask)).sum() for rows in embedded))


def passage_flops(config: ConfigDict, mask: np.ndarray) -> np.ndarray:
    """FLOPs of embedding each row of a mask."""
    lengths = mask.sum(-1)
    return encoder_flops(config.model, 1, lengths, 1) + embedding_head_flops(config.model, 1)


def flat(rows: np.ndarray) -> np.ndarray:
    """Rows [..., L] as [R, L]."""
    return np.asarray(rows).reshape(-1, rows.shape[-1])


if __name__ == "__main__":
    main()
