"""Self-attention on TPUs as a Pallas kernel that keeps the scores of a row on chip.

Device memory holds queries, keys, values and the output only: neither scores nor their statistics.
The backward pass computes the scores again, as FlashAttention does (Dao et al., 2022). A row has at
most a few hundred pieces, so all its scores fit into the fast memory of a core.

A grid step is a few heads of one row. Heads narrower than the 128 lanes of a TPU share a step:
their vectors lie side by side, and zeros in the queries select one of them. Rows stay where they
are in a stream; the rows of each width are one call, and all calls write the same output. Splash
attention and tokamax need rows of 128 pieces, heads before pieces, and no dropout.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Float32, Int32, Key

from realm_jax.models.whole_tiles import TILE

_PADDING_SCORE = -1e9  # finite, so that a row of padding only gives no NaN
_LANES = 128  # width of a TPU register
_KEEP_BITS = 24  # of the random bits that decide on dropout


class Form(NamedTuple):
    """What is fixed when a call is compiled.

    Attributes:
      head: width d of a head.
      rate: dropout rate of the attention weights; 0 in evaluation.
      interpret: whether to run the kernel as plain JAX, for tests on a CPU.
    """

    head: int
    rate: float
    interpret: bool


class _Call(NamedTuple):
    """The rows of one width: they begin at piece `start` of each stream."""

    start: int
    bias: Float32[Array, "G n 1 w"]  # 0 on real pieces, _PADDING_SCORE on padding
    seeds: Int32[Array, "seeds"]  # one for each stream, row and head


def attend_on_mesh(
    form: Form,
    projected: Float[Array, "3 G T F"],
    masks: Sequence[Bool[Array, "G _ _"]],
    seeds: Sequence[Int32[Array, "G _ _"]],
) -> Float[Array, "G T F"]:
    """`attend_streams` on each device of the current mesh: for its streams and its heads.

    XLA cannot divide a kernel. Streams are sharded over the data axes and heads over `model`,
    where their numbers divide; otherwise devices repeat the work.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return attend_streams(form, projected, masks, seeds)
    axes = tuple(axis for axis in mesh.axis_names if axis != "model")
    data = axes if projected.shape[1] % math.prod(mesh.shape[axis] for axis in axes) == 0 else None
    heads = seeds[0].shape[-1]
    model = "model" if heads % dict(mesh.shape).get("model", heads + 1) == 0 else None
    of_masks, of_seeds = [jax.P(data)] * len(masks), [jax.P(data, None, model)] * len(masks)
    mapped = jax.shard_map(
        partial(attend_streams, form),
        in_specs=(jax.P(None, data, None, model), of_masks, of_seeds),
        out_specs=jax.P(data, None, model),
        check_vma=False,
    )
    mixed: Array = mapped(projected, list(masks), list(seeds))
    return mixed


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_streams(
    form: Form,
    projected: Float[Array, "3 G T F"],
    masks: Sequence[Bool[Array, "G _ _"]],
    seeds: Sequence[Int32[Array, "G _ _"]],
) -> Float[Array, "G T F"]:
    """Self-attention within the rows of G streams, on one device.

    Args:
      form: see `Form`.
      projected: queries, keys and values of all heads, F = n d; the rows of all blocks
        concatenated.
      masks: one mask [G, rows, width] per block, True on real pieces; widths are multiples of TILE.
      seeds: one array [G, rows, n] per block; dropout depends on the seed of a head and on the
        positions of query and key only.
    """
    return _forward(form, projected, masks, seeds)[0]


def draw_seeds(
    drop: Key[Array, ""] | None, masks: Sequence[Bool[Array, "G _ _"]], heads: int
) -> list[Int32[Array, "G _ _"]]:
    """Seeds of `attend_streams`: equal on every mesh for the same key and streams."""
    shapes = [(*mask.shape[:2], heads) for mask in masks]
    if drop is None:
        return [jnp.zeros(shape, jnp.int32) for shape in shapes]
    keys = [jax.random.fold_in(drop, number) for number in range(len(masks))]
    drawn = [jax.random.bits(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    return [lax.bitcast_convert_type(bits, jnp.int32) for bits in drawn]


def keep(seed: Int32[Array, ""], shape: tuple[int, ...], query_axis: int, rate: float) -> Array:
    """Which of the weights [L, L] of a head dropout keeps: a hash of seed and positions.

    The hash has two of the three rounds of "lowbias32" (Wellons, 2018) in its high bits.
    """
    rows, columns = (lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
    query, key = (rows, columns) if query_axis == 0 else (columns, rows)
    bits = (query * shape[0] + key) ^ seed
    bits = (bits ^ lax.shift_right_logical(bits, 16)) * np.int32(0x7FEB352D)
    bits = (bits ^ lax.shift_right_logical(bits, 15)) * np.uint32(0x846CA68B).astype(np.int32)
    return lax.shift_right_logical(bits, 32 - _KEEP_BITS) < round((1 - rate) * 2**_KEEP_BITS)


def _forward(
    form: Form, projected: Array, masks: Sequence[Array], seeds: Sequence[Array]
) -> tuple[Array, tuple[Array, list[_Call]]]:
    calls = _calls(masks, seeds)
    out = None
    for call in calls:
        shape = jax.ShapeDtypeStruct(projected.shape[1:], projected.dtype)
        out = _run(_forward_kernel, form, call, [projected], out, shape, products=2)
    assert out is not None
    return out, (projected, calls)


def _backward(form: Form, saved: tuple[Array, list[_Call]], grad_out: Array) -> tuple[Any, ...]:
    projected, calls = saved
    grads = None
    for call in calls:
        shape = jax.ShapeDtypeStruct(projected.shape, projected.dtype)
        inputs = [projected, grad_out.astype(projected.dtype)]
        grads = _run(_backward_kernel, form, call, inputs, grads, shape, products=5)
    return grads, None, None


attend_streams.defvjp(_forward, _backward)


def _calls(masks: Sequence[Array], seeds: Sequence[Array]) -> list[_Call]:
    calls, start = [], 0
    for mask, seed in zip(masks, seeds, strict=True):
        bias = jnp.where(mask, 0.0, _PADDING_SCORE)[:, :, None].astype(jnp.float32)
        calls.append(_Call(start, bias, seed.reshape(-1)))
        start += mask.shape[1] * mask.shape[2]
    return calls


def _run(
    kernel: Any,
    form: Form,
    call: _Call,
    streams: Sequence[Array],
    before: Array | None,
    shape: jax.ShapeDtypeStruct,
    products: int,
) -> Array:
    """Runs a kernel for the rows of one width.

    Args:
      kernel: `_forward_kernel` or `_backward_kernel`.
      form: see `Form`.
      call: the rows.
      streams: arrays [G, T, F] or [3, G, T, F] that it reads.
      before: output of the calls before, which this call completes; None in the first call.
      shape: of the output.
      products: matrix products for each head.
    """
    groups, rows, _, width = call.bias.shape
    features = shape.shape[-1]
    lanes = _lanes(features, form.head)
    parts = features // lanes

    def block(array: Any) -> pl.BlockSpec:
        leading = array.ndim - 3

        def at(group: Any, row: Any, part: Any, *_: Any) -> tuple[Any, ...]:
            piece = pl.multiple_of(call.start + row * width, TILE)
            return (*[0] * leading, group, piece, pl.multiple_of(part * lanes, lanes))

        sizes: list[Any] = [pl.Element(3)] * leading
        sizes += [pl.Squeezed(), pl.Element(width), pl.Element(lanes)]
        return pl.BlockSpec(sizes, at)

    bias = pl.BlockSpec(
        (pl.Squeezed(), pl.Squeezed(), 1, width), lambda group, row, *_: (group, row, 0, 0)
    )
    pieces, bytes_of = groups * rows * width, shape.dtype.itemsize
    shapes = [*(stream.shape for stream in streams), shape.shape]
    moved = sum(math.prod(one) // one[-2] // groups for one in shapes)
    given = [] if before is None else [before]
    return pl.pallas_call(
        partial(kernel, form.head, form.rate),
        out_shape=shape,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(groups, rows, parts),
            in_specs=[
                bias,
                *map(block, streams),
                *[pl.BlockSpec(memory_space=pl.ANY)] * len(given),
            ],
            out_specs=block(shape),
        ),
        input_output_aliases={} if before is None else {2 + len(streams): 0},
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel")
        ),
        cost_estimate=pl.CostEstimate(
            flops=products * 2 * pieces * width * features,
            bytes_accessed=pieces * (moved * bytes_of + 4),
            transcendentals=pieces * width * features // form.head,
        ),
        interpret=form.interpret,
        name=kernel.__name__.strip("_"),
    )(call.seeds, call.bias, *streams, *given)


def _lanes(features: int, head: int) -> int:
    """Features of a grid step: whole heads in whole registers if possible, else all of them."""
    lanes = max(_LANES, head)
    return lanes if features % lanes == 0 and lanes % head == 0 else features


def _seed(seeds: Any, heads: int, number: int) -> Array:
    """Seed of a head of this grid step."""
    row = pl.program_id(0) * pl.num_programs(1) + pl.program_id(1)
    return seeds[(row * pl.num_programs(2) + pl.program_id(2)) * heads + number]


def _one_head(x: Array, head: int, number: int) -> Array:
    """x [L, lanes] with zeros outside the lanes of one head."""
    lane = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    inside = (lane >= number * head) & (lane < (number + 1) * head)
    return jnp.where(inside, x, jnp.zeros_like(x))


def _dot(x: Array, y: Array, contracted: tuple[int, int]) -> Float32[Array, "m n"]:
    axes = ((contracted[:1], contracted[1:]), ((), ()))
    return lax.dot_general(x, y, axes, preferred_element_type=jnp.float32)


def _forward_kernel(head: int, rate: float, seeds: Any, bias: Any, projected: Any, *rest: Any):
    """Scores [query, key] of each head of a step; see `attention._forward` for the arithmetic."""
    out, (query, key, value) = rest[-1], projected[...]
    heads, mixed = query.shape[1] // head, jnp.zeros(query.shape, jnp.float32)
    for number in range(heads):
        own = (_one_head(query, head, number) * head**-0.5).astype(query.dtype)
        scores = _dot(own, key, (1, 1)) + bias[...]
        weights = jnp.exp(scores - scores.max(1, keepdims=True))
        factor = 1.0 / weights.sum(1, keepdims=True)
        if rate:
            kept = keep(_seed(seeds, heads, number), weights.shape, 0, rate)
            weights, factor = jnp.where(kept, weights, 0.0), factor / (1.0 - rate)
        all_heads = _dot(weights.astype(value.dtype), value, (1, 0)) * factor
        mixed += _one_head(all_heads, head, number)
    out[...] = mixed.astype(out.dtype)


def _backward_kernel(
    head: int, rate: float, seeds: Any, bias: Any, projected: Any, grad_out: Any, *rest: Any
):
    """Scores [key, query]: of the five products only one has a transposed left operand."""
    grads, (query, key, value), dtype = rest[-1], projected[...], grad_out.dtype
    heads, scaling = query.shape[1] // head, head**-0.5
    sums = [jnp.zeros(query.shape, jnp.float32) for _ in range(3)]
    hidden = bias[...].reshape(-1, 1)
    for number in range(heads):
        own_query = (_one_head(query, head, number) * scaling).astype(dtype)
        own_grad = _one_head(grad_out[...], head, number)
        scores = _dot(key, own_query, (1, 1)) + hidden
        weights = jnp.exp(scores - scores.max(0, keepdims=True))
        weights = weights / weights.sum(0, keepdims=True)
        grad_weights, dropped = _dot(value, own_grad, (1, 1)), weights
        if rate:
            kept = keep(_seed(seeds, heads, number), weights.shape, 1, rate)
            dropped = jnp.where(kept, weights * (1.0 / (1.0 - rate)), 0.0)
            grad_weights = jnp.where(kept, grad_weights * (1.0 / (1.0 - rate)), 0.0)
        common = (weights * grad_weights).sum(0, keepdims=True)
        grad_scores = (weights * (grad_weights - common)).astype(dtype)
        sums[0] += _one_head(_dot(grad_scores, key, (0, 0)), head, number) * scaling
        sums[1] += _dot(grad_scores, own_query, (1, 0))  # zero outside the head
        sums[2] += _dot(dropped.astype(dtype), own_grad, (1, 0))
    for number, total in enumerate(sums):
        grads[number] = total.astype(grads.dtype)
