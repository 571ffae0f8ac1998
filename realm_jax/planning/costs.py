"""What a compiled program does on one chip: products, memory traffic, talk between chips."""

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
# Kinds that only name, group or wait for what other instructions moved.
_FREE = frozenset(
    """
    parameter constant tuple get-tuple-element bitcast while conditional call after-all partition-id
    replica-id async-start async-update
    """.split()  # noqa: SIM905
)
_FREE_CALLS = ("AllocateBuffer", "ConcatBitcast", "Sharding")
_SLICES = ("dynamic-slice", "slice")


def product_flops(program: Program) -> float:
    """Floating-point operations of all products of matrices (TPUs run them as convolutions)."""
    total = 0.0
    for computation, one, times, _ in program.running():
        if one.kind == "convolution":
            total += times * _convolution(computation, one)
        elif one.kind == "dot":
            total += times * _dot(computation, one)
    return total


def _dot(computation: Computation, one: Instruction) -> float:
    left = computation.operands(one)[0].results[0].shape
    summed = [int(n) for n in re.findall(r"\d+", one.attribute("lhs_contracting_dims"))]
    return 2.0 * math.prod(one.results[0].shape) * math.prod(left[axis] for axis in summed)


def _convolution(computation: Computation, one: Instruction) -> float:
    """Two for each pair of a kernel element and an input element that meet.

    Batch axes of a product become spatial axes here, dilated so that only equals meet.
    """
    left, right = (operand.results[0].shape for operand in computation.operands(one)[:2])
    names, out_names = one.attribute("dim_labels").split("->")
    left_names, right_names = names.split("_")
    out = dict(zip(out_names, one.results[0].shape, strict=True))
    given = dict(zip(left_names, left, strict=True))
    kernel = dict(zip(right_names, right, strict=True))
    window = one.attribute("window")
    meetings = 1
    for number, axis in enumerate(sorted(name for name in out if name.isdigit())):
        meetings *= _meetings(window, number, given[axis], kernel[axis], out[axis])
    return 2.0 * out["b"] * out["f"] * kernel["i"] * meetings


def _meetings(window: str, axis: int, size: int, kernel: int, out: int) -> int:
    """Pairs (output place, kernel place) of one spatial axis that fall on an input place."""
    stride, low = _of_window(window, "stride", axis, 1), _of_window(window, "pad", axis, 0)
    spread = _of_window(window, "lhs_dilate", axis, 1)
    kernel_spread = _of_window(window, "rhs_dilate", axis, 1)
    found = 0
    for place in range(out):
        first = place * stride - low
        for other in range(kernel):
            at = first + other * kernel_spread
            found += at % spread == 0 and 0 <= at // spread < size
    return found


def _of_window(window: str, name: str, axis: int, default: int) -> int:
    """One number of `{size=8x4 pad=0_0x3_3 …}`; of a padding the lower one."""
    match = re.search(rf"\b{name}=([-\dx_]+)", window)
    return int(match[1].split("x")[axis].split("_")[0]) if match else default


def collectives(program: Program) -> list[dict[str, Any]]:
    """Kind, bytes and count of the talk between chips, most bytes first.

    Bytes are those of the whole array that each chip gives or gets: of an all-gather the gathered
    one, of a reduce-scatter the one before it.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for computation, one, times, _ in program.running():
        kind = one.kind.removesuffix("-start")
        if kind in COLLECTIVES:
            sums[kind][0] += times * _whole(computation, one)
            sums[kind][1] += times
    found = [{"kind": k, "bytes": int(b), "count": int(n)} for k, (b, n) in sums.items()]
    return sorted(found, key=lambda one: -one["bytes"])


def _whole(computation: Computation, one: Instruction) -> float:
    given = sum((a.bytes for operand in computation.operands(one) for a in operand.results), 0.0)
    return max(given, _made(one.kind, [array.bytes for array in one.results]))


def _made(kind: str, parts: list[float]) -> float:
    """Bytes of a result; what starts a transfer names its operand beside it."""
    return max(parts, default=0.0) if kind.endswith("-start") else sum(parts, 0.0)


def hbm_traffic(program: Program) -> float:
    """Bytes read from and written to device memory; what stays in a core's fast memory is free."""
    moved = (
        times * _traffic(program, computation, one)
        for computation, one, times, fused in program.running()
        if not fused and not _is_free(one)
    )
    return sum(moved, 0.0)


def _is_free(one: Instruction) -> bool:
    if one.kind == "custom-call":
        return any(name in one.attributes for name in _FREE_CALLS)
    return one.kind in _FREE or one.kind.endswith("-done")


def _traffic(program: Program, computation: Computation, one: Instruction) -> float:
    operands = computation.operands(one)
    if one.kind == "copy-start":  # (copy, original, …)
        return one.results[0].bytes * sum(array.in_hbm for array in one.results[:2])
    if one.kind == "slice-start":  # (original, slice, …)
        return one.results[1].bytes * sum(array.in_hbm for array in one.results[:2])
    inner = program.computations[program.called(one)[0]] if one.kind == "fusion" else None
    read = 0.0
    for number, operand in enumerate(operands):
        whole = sum((array.bytes for array in operand.results if array.in_hbm), 0.0)
        read += min(whole, _used(inner, number)) if inner else whole
    written = _made(one.kind, [array.bytes for array in one.results if array.in_hbm])
    root, around = (_root(inner), inner) if inner else (one, computation)
    if root.kind == "dynamic-update-slice":  # in place: the rest is neither read nor written
        written = min(written, around.operands(root)[1].results[0].bytes)
        return (read if inner else written) + written
    return min(read, one.results[0].bytes) + written if one.kind in _SLICES else read + written


def _root(computation: Computation) -> Instruction:
    return next(one for one in computation.instructions.values() if one.root)


def _used(inner: Computation, number: int) -> float:
    """Bytes that a fusion reads of its operand: slices where it only slices it."""
    name = next(
        (
            one.name
            for one in inner.instructions.values()
            if one.kind == "parameter" and one.operands == () and _number(one) == number
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


def _number(parameter: Instruction) -> int:
    return int(parameter.attributes or -1)


def host_calls(program: Program) -> list[str]:
    """Names of instructions that would wait for the host in the middle of a step."""
    found = []
    for _, one, _, _ in program.running():
        callback = one.kind == "custom-call" and "callback" in one.attributes.lower()
        transfer = one.kind in ("infeed", "outfeed") or "is_host_transfer=true" in one.attributes
        found += [one.name] if callback or transfer else []
    return found
