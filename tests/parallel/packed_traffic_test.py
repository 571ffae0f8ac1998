"""What a step over packed rows sends between devices: gradients and figures, never pieces."""

from ml_collections import ConfigDict
from support.tiny_corpus import tiny_config

from realm_jax.parallel.sharding import make_mesh
from realm_jax.planning.hlo import parse
from realm_jax.planning.programs import train_program

TALK = ("all-gather", "all-to-all", "collective-permute", "reduce-scatter", "all-reduce")


def test_no_hidden_vector_of_a_piece_leaves_its_device():
    config = tiny_config(stages__realm__steps=5, model__layers=1)
    mesh = make_mesh(ConfigDict({"replica": 1, "data": 8, "fsdp": 1, "model": 1}))
    program = train_program(config, mesh, 200)
    compiled = parse(program.lowered.compile().as_text())
    said = [one for _, one, _, _ in compiled.running() if one.kind.startswith(TALK)]
    assert any(one.kind.startswith("all-reduce") for one in said)
    moved = [one for one in said if not one.kind.startswith("all-reduce")]
    assert not moved, [(one.kind, one.results) for one in moved]
    reduced = sum(array.bytes for one in said for array in one.results)
    assert reduced < 1.5 * program.parameter_bytes
