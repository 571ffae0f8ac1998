"""Costs of a compiled program on one chip: FLOPs, memory traffic and collectives."""

import math
import re
from collections import defaultdict
from typing import Any

from realm_jax.planning.hlo import Computation, Instruction, Program

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# Instructions that move no data: they name, group or wait for results of others.
_FREE = frozenset(
    """
    parameter constant tuple get-tuple-element bitcast while conditional call after-all partition-id
    replica-id async-start async-update
    """.split()  # noqa: SIM905
)
_FREE_CALLS = ("AllocateBuffer", "ConcatBitcast", "Sharding")
_SLICES = ("dynamic-slice", "slice")
_SLICE_RUNTIME = "xla_megascale_runtime"  # moves data between slices


def product_flops(program: Program) -> float:
    """FLOPs of all matrix products, which are convolutions on TPUs, and those of kernels."""
    total = 0.0
    for computation, instruction, count, _ in program.executed():
        if instruction.kind == "convolution":
            total += count * _convolution(computation, instruction)
        elif instruction.kind == "dot":
            total += count * _dot(computation, instruction)
        else:
            total += count * (_estimate(instruction, "flops") or 0.0)
    return total


def _estimate(instruction: Instruction, name: str) -> float | None:
    """A number of the `cost_estimate` of a kernel; None for other instructions."""
    if instruction.kind != "custom-call":
        return None
    found = re.search(rf'"cost_estimate":{{[^}}]*"{name}":"(\d+)"', instruction.attributes)
    return float(found[1]) if found else None


def _dot(computation: Computation, dot: Instruction) -> float:
    left = computation.operands(dot)[0].results[0].shape
    contracted = [int(n) for n in re.findall(r"\d+", dot.attribute("lhs_contracting_dims"))]
    return 2.0 * math.prod(dot.results[0].shape) * math.prod(left[axis] for axis in contracted)


def _convolution(computation: Computation, convolution: Instruction) -> float:
    """FLOPs of a convolution: two for each multiplied pair of a kernel and an input element.

    XLA turns batch axes of a matrix product into spatial axes, dilated so that only elements with
    the same batch index are multiplied.
    """
    left, right = (operand.results[0].shape for operand in computation.operands(convolution)[:2])
    names, out_names = convolution.attribute("dim_labels").split("->")
    left_names, right_names = names.split("_")
    out = dict(zip(out_names, convolution.results[0].shape, strict=True))
    inputs = dict(zip(left_names, left, strict=True))
    kernel = dict(zip(right_names, right, strict=True))
    window = convolution.attribute("window")
    pairs = 1
    for number, axis in enumerate(sorted(name for name in out if name.isdigit())):
        pairs *= _multiplied_pairs(window, number, inputs[axis], kernel[axis], out[axis])
    return 2.0 * out["b"] * out["f"] * kernel["i"] * pairs


def _multiplied_pairs(window: str, axis: int, size: int, kernel: int, out: int) -> int:
    """Pairs (output index, kernel index) of one spatial axis that hit an input element."""
    stride, low = _window_value(window, "stride", axis, 1), _window_value(window, "pad", axis, 0)
    dilation = _window_value(window, "lhs_dilate", axis, 1)
    kernel_dilation = _window_value(window, "rhs_dilate", axis, 1)
    pairs = 0
    for out_index in range(out):
        for kernel_index in range(kernel):
            position = out_index * stride - low + kernel_index * kernel_dilation
            pairs += position % dilation == 0 and 0 <= position // dilation < size
    return pairs


def _window_value(window: str, name: str, axis: int, default: int) -> int:
    """One number of a window such as `{size=8x4 pad=0_0x3_3 …}`; of a padding, the lower one."""
    match = re.search(rf"\b{name}=([-\dx_]+)", window)
    return int(match[1].split("x")[axis].split("_")[0]) if match else default


def collectives(program: Program) -> list[dict[str, Any]]:
    """Lists kind, bytes and count of the collectives, most bytes first.

    Bytes are those of the larger array per chip: the output of an all-gather, the input of a
    reduce-scatter.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for computation, instruction, count, _ in program.executed():
        kind = instruction.kind.removesuffix("-start")
        if kind in COLLECTIVES:
            sums[kind][0] += count * _larger_side(computation, instruction)
            sums[kind][1] += count
    found = [{"kind": k, "bytes": int(b), "count": int(n)} for k, (b, n) in sums.items()]
    return sorted(found, key=lambda collective: -collective["bytes"])


def _larger_side(computation: Computation, instruction: Instruction) -> float:
    operands = computation.operands(instruction)
    inputs = sum((array.bytes for operand in operands for array in operand.results), 0.0)
    sizes = [array.bytes for array in instruction.results]
    return max(inputs, _result_bytes(instruction.kind, sizes))


def _result_bytes(kind: str, sizes: list[float]) -> float:
    """Bytes of a result; the result tuple of a `-start` instruction also lists its operand."""
    return max(sizes, default=0.0) if kind.endswith("-start") else sum(sizes, 0.0)


def hbm_traffic(program: Program) -> dict[str, float]:
    """Bytes read from and written to HBM by kind of instruction, most bytes first.

    The kinds are `products` (matrix products and what is fused with them), `kernels` (hand-written
    kernels and other custom calls), `collectives`, `copies`, and `element-wise` (all others). Data
    in the fast memory of a core is not counted.
    """
    sums: dict[str, float] = defaultdict(float)
    for computation, instruction, count, fused in program.executed():
        if not fused and not _moves_nothing(instruction):
            moved = count * _traffic(program, computation, instruction)
            sums[_traffic_kind(program, instruction)] += moved
    return dict(sorted(sums.items(), key=lambda kind: -kind[1]))


def _traffic_kind(program: Program, instruction: Instruction) -> str:
    kind = instruction.kind.removesuffix("-start")
    if kind in COLLECTIVES:
        return "collectives"
    if kind in ("copy", "slice"):
        return "copies"
    if kind == "custom-call":
        return "kernels"
    return "products" if _multiplies(program, instruction) else "element-wise"


def _multiplies(program: Program, instruction: Instruction) -> bool:
    """Whether an instruction, or the fusion that it is, has a matrix product."""
    if instruction.kind in ("convolution", "dot"):
        return True
    called = [program.computations[name] for name in program.called(instruction)]
    return any(_multiplies(program, one) for part in called for one in part.instructions.values())


def _moves_nothing(instruction: Instruction) -> bool:
    if instruction.kind == "custom-call":
        return any(name in instruction.attributes for name in _FREE_CALLS)
    return instruction.kind in _FREE or instruction.kind.endswith("-done")


def _traffic(program: Program, computation: Computation, instruction: Instruction) -> float:
    kind, results = instruction.kind, instruction.results
    if kind == "copy-start":  # (copy, original, …)
        return results[0].bytes * sum(array.in_hbm for array in results[:2])
    if kind == "slice-start":  # (original, slice, …)
        return results[1].bytes * sum(array.in_hbm for array in results[:2])
    inner = program.computations[program.called(instruction)[0]] if kind == "fusion" else None
    read = 0.0
    for number, operand in enumerate(computation.operands(instruction)):
        whole = sum((array.bytes for array in operand.results if array.in_hbm), 0.0)
        read += min(whole, _bytes_read(inner, number)) if inner else whole
    written = _result_bytes(kind, [array.bytes for array in results if array.in_hbm])
    declared = _estimate(instruction, "bytes_accessed")
    if declared is not None:  # a kernel may use a part of its operands only
        return min(declared, read + written)
    root, around = (_root(inner), inner) if inner else (instruction, computation)
    if root.kind == "dynamic-update-slice":  # in place: only the slice is read and written
        written = min(written, around.operands(root)[1].results[0].bytes)
        return (read if inner else written) + written
    return min(read, results[0].bytes) + written if kind in _SLICES else read + written


def _root(computation: Computation) -> Instruction:
    return next(one for one in computation.instructions.values() if one.root)


def _bytes_read(inner: Computation, number: int) -> float:
    """Bytes that a fusion reads of an operand: its slices, or infinity for the whole operand."""
    name = next(
        (
            instruction.name
            for instruction in inner.instructions.values()
            if instruction.kind == "parameter"
            and instruction.operands == ()
            and _parameter_number(instruction) == number
        ),
        None,
    )
    users = [one for one in inner.instructions.values() if name in one.operands]
    total = 0.0
    for user in users:
        if user.kind in _SLICES:
            total += user.results[0].bytes
        elif user.kind == "dynamic-update-slice" and user.operands[0] == name:
            continue  # written in place
        else:
            return math.inf
    return total


def _parameter_number(parameter: Instruction) -> int:
    return int(parameter.attributes or -1)


def host_calls(program: Program) -> list[str]:
    """Names of the instructions that wait for the host during a step.

    Transfers between slices also pass through the hosts, but the runtime of the slices moves them,
    not the Python process.
    """
    found = []
    for _, instruction, _, _ in program.executed():
        kind, attributes = instruction.kind, instruction.attributes
        callback = kind == "custom-call" and "callback" in attributes.lower()
        by_host = "is_host_transfer=true" in attributes and _SLICE_RUNTIME not in attributes
        transfer = kind in ("infeed", "outfeed") or by_host
        found += [instruction.name] if callback or transfer else []
    return found
