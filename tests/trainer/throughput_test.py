"""Products counted in traced functions, and a stopwatch that stands still."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.parallel.sharding import make_mesh
from realm_jax.trainer import throughput as speed_lib
from realm_jax.trainer.throughput import Speed, peak_flops, products


def counted(function, *shapes):
    return products(
        jax.make_jaxpr(function)(*(np.zeros(shape, np.float32) for shape in shapes)).jaxpr
    )


def looped(x, w):
    return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=7)[0]


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (lambda a, b: a @ b, [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
        (lambda a, b: jnp.einsum("bqd,bkd->bqk", a, b), [(2, 3, 8), (2, 5, 8)], 2 * 2 * 3 * 5 * 8),
        (lambda a, b: jax.jit(lambda x: x @ b)(jax.nn.gelu(a)), [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
        (looped, [(3, 4), (4, 4)], 7 * 2 * 3 * 4 * 4),
        (jax.checkpoint(looped), [(3, 4), (4, 4)], 7 * 2 * 3 * 4 * 4),
        (lambda a: a + a, [(3, 4)], 0),
    ],
)
def test_products_are_counted_wherever_they_are(function, shapes, expected):
    assert counted(function, *shapes) == expected


def test_a_step_is_three_forward_passes(monkeypatch):
    now = iter(range(0, 100, 2))
    monkeypatch.setattr(speed_lib, "time", SimpleNamespace(monotonic=lambda: next(now)))
    speed = Speed(peak=1000.0)
    speed.one_step(lambda a, b: a @ b, jnp.zeros((3, 4)), jnp.zeros((4, 5)))
    speed.start()
    speed.stop()  # 2 s
    found = speed.figures(steps=10, pieces=400.0)
    assert found == {"steps_per_second": 5.0, "pieces_per_second": 200.0, "mfu": 3 * 120 * 5 / 1000}


def test_time_stands_still_between_stop_and_start(monkeypatch):
    now = iter([0.0, 1.0, 50.0, 52.0, 52.0, 60.0, 61.0])
    monkeypatch.setattr(speed_lib, "time", SimpleNamespace(monotonic=lambda: next(now)))
    speed = Speed(peak=None)
    for call in (speed.start, speed.start, speed.stop, speed.stop, speed.start):
        call()
    assert speed.figures(6, 3.0) == {"steps_per_second": 2.0, "pieces_per_second": 1.0}  # 1 + 2 s
    assert speed.figures(8, 0.0)["steps_per_second"] == 1.0  # goes on from where it was asked
    assert Speed(None).figures(1, 1.0) == {}


def test_the_peak_of_a_processor_is_not_known_unless_it_is_given():
    mesh = make_mesh(tiny_config().mesh)
    assert peak_flops(mesh, tiny_config().report) is None
    assert peak_flops(mesh, tiny_config(report__peak_flops=2e12).report) == 16e12
