"""A step over packed rows communicates gradients and metrics between devices, no activations."""

from ml_collections import ConfigDict
from support.tiny_corpus import tiny_config

from realm_jax.parallel.sharding import make_mesh
from realm_jax.planning.hlo import parse
from realm_jax.planning.lowered import Target
from realm_jax.planning.stage_programs import train

COLLECTIVES = ("all-gather", "all-to-all", "collective-permute", "reduce-scatter", "all-reduce")


def test_the_step_only_communicates_all_reduced_gradients_and_metrics():
    config = tiny_config(stages__realm__steps=5, model__layers=1)
    mesh = make_mesh(ConfigDict({"replica": 1, "data": 8, "fsdp": 1, "model": 1}))
    program = train(Target(config, mesh, 200, 0), "realm")
    compiled = parse(program.lowered.compile().as_text())
    collectives = [one for _, one, _, _ in compiled.executed() if one.kind.startswith(COLLECTIVES)]
    assert any(one.kind.startswith("all-reduce") for one in collectives)
    moved = [one for one in collectives if not one.kind.startswith("all-reduce")]
    assert not moved, [(one.kind, one.results) for one in moved]
    reduced = sum(array.bytes for one in collectives for array in one.results)
    assert reduced < 1.5 * program.parameter_bytes
