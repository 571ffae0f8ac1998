"""The first state of a run is made where it lies."""

import jax
from support.tiny_corpus import tiny_config

from realm_jax.models.modules import Modules
from realm_jax.parallel.program import Program
from realm_jax.parallel.sharding import make_mesh, param_shardings
from realm_jax.trainer.init_params import initial_params
from realm_jax.trainer.optimizer import make_optimizer
from realm_jax.trainer.state import make_state


def test_params_are_drawn_and_become_a_state_in_their_shards(monkeypatch):
    """No device holds a whole large param, and none holds the params twice."""
    config = tiny_config(model__layers=1, mesh__fsdp=4, mesh__model=2, mesh__data=1)
    mesh, modules = make_mesh(config.mesh), Modules(config.model, 96, ("embedder",))
    expected = jax.tree.leaves(param_shardings(mesh, modules.axes, modules.shapes))
    called, call = {}, Program.__call__

    def recorded(program, *arguments, **options):
        called[program.name] = call(program, *arguments, **options)
        return called[program.name]

    monkeypatch.setattr(Program, "__call__", recorded)
    drawn = initial_params(config, modules, {}, mesh)
    optimizer = make_optimizer(config.optimizer, config.stages.ict)
    state = make_state(modules, optimizer, mesh, drawn)
    assert called.keys() == {"init", "state"}
    for tree in (called["init"], called["state"].parameters, state.parameters):
        for leaf, sharding in zip(jax.tree.leaves(tree), expected, strict=True):
            assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
    sizes = local_sizes(state.parameters)
    assert local_sizes(state.optimizer) == sorted([1] + 2 * sizes)  # count of steps, two moments
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(drawn))


def local_sizes(tree):
    """Numbers of each array that one device holds."""
    return sorted(leaf.addressable_shards[0].data.size for leaf in jax.tree.leaves(tree))
