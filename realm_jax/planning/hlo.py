"""Reads the text of a compiled XLA program: computations, instructions, and how often each runs.

XLA's own cost analysis counts the body of a loop once, and the layers of BERT are a loop; so what
runs how often is read here.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BYTES = {"pred": 1, "s4": 0.5, "u4": 0.5, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
_BYTES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8, "c64": 8}
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^{}]*\})?")
_NAMES = re.compile(r"%([\w.\-]+)")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|called_computations)=\{?%([\w.\-]+)")
_BRANCHES = re.compile(
    r"(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=%([\w.\-]+))"
)


@dataclass(frozen=True)
class Array:
    """One array of a type; `in_hbm` is false for what lies in a core's own fast memory."""

    dtype: str
    shape: tuple[int, ...]
    in_hbm: bool

    @property
    def bytes(self) -> float:
        """Without padding."""
        return float(math.prod(self.shape) * _BYTES.get(self.dtype, 1))


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    kind: str  # opcode
    results: tuple[Array, ...]  # the parts of a tuple, flattened
    operands: tuple[str, ...]
    attributes: str
    root: bool

    def attribute(self, name: str) -> str:
        """The text of an attribute up to the next one; "" if there is none."""
        found = re.search(rf"\b{name}=([^\s{{]+|\{{[^}}]*\}})", self.attributes)
        return found[1].rstrip(",") if found else ""


@dataclass
class Computation:
    """Instructions by name, in order."""

    instructions: dict[str, Instruction] = field(default_factory=dict)

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """What the operands are, as far as they are of this computation."""
        return [self.instructions[n] for n in instruction.operands if n in self.instructions]


@dataclass(frozen=True)
class Program:
    """All computations of a compiled program."""

    computations: dict[str, Computation]
    entry: str

    def running(self) -> Iterator[tuple[Computation, Instruction, int, bool]]:
        """Each instruction with its computation, how often it runs, and whether it is in a fusion.

        Loops run as often as their condition says; of a branch, every arm is counted.
        """
        yield from self._running(self.entry, 1, False)

    def _running(
        self, name: str, times: int, fused: bool
    ) -> Iterator[tuple[Computation, Instruction, int, bool]]:
        computation = self.computations[name]
        for one in computation.instructions.values():
            yield computation, one, times, fused
            inside = fused or one.kind == "fusion"
            more = self.trips(one) if one.kind == "while" else 1
            for called in self.called(one):
                yield from self._running(called, times * more, inside)

    def called(self, instruction: Instruction) -> list[str]:
        """Computations that an instruction runs; not those that combine two elements."""
        if instruction.kind == "while":
            return [instruction.attribute("body").lstrip("%")]
        if instruction.kind == "conditional":
            found = _BRANCHES.findall(instruction.attributes)
            return [name for many, one in found for name in _NAMES.findall(many) or [one]]
        if instruction.kind in ("fusion", "call", "async-start"):
            return _CALLED.findall(instruction.attributes)[:1]
        return []

    def trips(self, loop: Instruction) -> int:
        """How often the body of a `while` runs: the bound that its counter is compared with."""
        known = re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes)
        if known:
            return int(known[1])
        condition = self.computations[loop.attribute("condition").lstrip("%")]
        bounds = [
            int(constant.attributes)
            for constant in condition.instructions.values()
            if constant.kind == "constant" and constant.attributes.isdigit()
        ]
        return max(bounds, default=1)


def parse(text: str) -> Program:
    """A program from its text (`compiled.as_text()`)."""
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for line in text.splitlines():
        header = None if line.startswith(" ") else _HEADER.match(line)
        if header:
            current = computations[header[2]] = Computation()
            entry = header[2] if header[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and " = " in line:
            one = _instruction(line)
            current.instructions[one.name] = one
    return Program(computations, entry)


def _instruction(line: str) -> Instruction:
    left, _, right = line.strip().partition(" = ")
    end = _closing(right, 0) if right.startswith("(") else right.index(" ")
    kind, _, rest = right[end:].lstrip(") ").partition("(")
    close = _closing("(" + rest, 0) - 1
    inner, attributes = rest[:close], rest[close + 1 :]
    literal = kind in ("constant", "parameter")
    return Instruction(
        name=left.removeprefix("ROOT ").lstrip("%"),
        kind=kind,
        results=_arrays(right[:end]),
        operands=() if literal else tuple(_NAMES.findall(inner)),
        attributes=inner if literal else attributes,
        root=left.startswith("ROOT "),
    )


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text)


def _arrays(text: str) -> tuple[Array, ...]:
    found = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        shape = tuple(int(size) for size in sizes.split(",") if size)
        found.append(Array(dtype, shape, "S(" not in layout))
    return tuple(found)
