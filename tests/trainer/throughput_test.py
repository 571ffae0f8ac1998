"""FLOPs of traced functions, and training throughput without the time of evaluation and saving."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny_corpus import tiny_config

from realm_jax.parallel.sharding import make_mesh
from realm_jax.trainer import throughput as throughput_lib
from realm_jax.trainer.throughput import Throughput, matmul_flops, peak_flops


def flops_of(function, *shapes):
    return matmul_flops(
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
def test_matrix_products_are_counted_in_nested_functions_and_loops(function, shapes, expected):
    assert flops_of(function, *shapes) == expected


def test_a_training_step_counts_as_three_forward_passes(monkeypatch):
    now = iter(range(0, 100, 2))
    monkeypatch.setattr(throughput_lib, "time", SimpleNamespace(monotonic=lambda: next(now)))
    throughput = Throughput(peak=1000.0)
    throughput.count_flops(lambda a, b: a @ b, jnp.zeros((3, 4)), jnp.zeros((4, 5)))
    throughput.start()
    throughput.stop()  # 2 s
    found = throughput.rates(steps=10, tokens=400.0)
    assert found == {"steps_per_second": 5.0, "pieces_per_second": 200.0, "mfu": 3 * 120 * 5 / 1000}


def test_time_between_stop_and_start_is_not_counted(monkeypatch):
    now = iter([0.0, 1.0, 50.0, 52.0, 52.0, 60.0, 61.0])
    monkeypatch.setattr(throughput_lib, "time", SimpleNamespace(monotonic=lambda: next(now)))
    throughput = Throughput(peak=None)
    start, stop = throughput.start, throughput.stop
    for call in (start, start, stop, stop, start):
        call()
    expected = {"steps_per_second": 2.0, "pieces_per_second": 1.0}  # in 1 s + 2 s
    assert throughput.rates(6, 3.0) == expected
    assert throughput.rates(8, 0.0)["steps_per_second"] == 1.0  # counts from the previous call
    assert Throughput(None).rates(1, 1.0) == {}


def test_peak_flops_of_a_cpu_must_be_configured():
    mesh = make_mesh(tiny_config().mesh)
    assert peak_flops(mesh, tiny_config().report) is None
    assert peak_flops(mesh, tiny_config(report__peak_flops=2e12).report) == 16e12
