"""Parses the text of a compiled XLA program: computations, instructions and their run counts.

XLA's `cost_analysis` counts the body of a loop once, and the layers of BERT are a loop. Unrolling
the layers takes 6 times as long to compile and gives a program with other memory use.
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
    """Type of one array; `in_hbm` is false if it is kept in the fast memory of a core."""

    dtype: str
    shape: tuple[int, ...]
    in_hbm: bool

    @property
    def bytes(self) -> float:
        """Size in bytes, without padding."""
        return float(math.prod(self.shape) * _BYTES.get(self.dtype, 1))


@dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
      name: unique in its computation.
      kind: opcode.
      results: result arrays; a tuple is flattened.
      operands: names of the operands.
      attributes: text after the operands; for a constant or parameter, its literal.
      root: whether it is the result of the computation.
    """

    name: str
    kind: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    root: bool

    def attribute(self, name: str) -> str:
        """Text of an attribute; "" if it is missing."""
        found = re.search(rf"\b{name}=([^\s{{]+|\{{[^}}]*\}})", self.attributes)
        return found[1].rstrip(",") if found else ""


@dataclass
class Computation:
    """The instructions of a computation by name, in order."""

    instructions: dict[str, Instruction] = field(default_factory=dict)

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that compute the operands, if they are in this computation."""
        return [self.instructions[n] for n in instruction.operands if n in self.instructions]


@dataclass(frozen=True)
class Program:
    """All computations of a compiled program; `entry` is the name of the first one to run."""

    computations: dict[str, Computation]
    entry: str

    def executed(self) -> Iterator[tuple[Computation, Instruction, int, bool]]:
        """Yields (computation, instruction, run count, whether it is in a fusion).

        The body of a loop counts once per iteration; all branches of a conditional are counted.
        """
        yield from self._executed(self.entry, 1, False)

    def _executed(
        self, name: str, count: int, fused: bool
    ) -> Iterator[tuple[Computation, Instruction, int, bool]]:
        computation = self.computations[name]
        for instruction in computation.instructions.values():
            yield computation, instruction, count, fused
            inside = fused or instruction.kind == "fusion"
            loop = instruction.kind == "while"
            iterations = self.iterations(computation, instruction) if loop else 1
            for called in self.called(instruction):
                yield from self._executed(called, count * iterations, inside)

    def called(self, instruction: Instruction) -> list[str]:
        """Names of the computations that an instruction calls, except element-wise reducers."""
        if instruction.kind == "while":
            return [instruction.attribute("body").lstrip("%")]
        if instruction.kind == "conditional":
            found = _BRANCHES.findall(instruction.attributes)
            return [name for names, single in found for name in _NAMES.findall(names) or [single]]
        if instruction.kind in ("fusion", "call", "async-start"):
            return _CALLED.findall(instruction.attributes)[:1]
        return []

    def iterations(self, computation: Computation, loop: Instruction) -> int:
        """Iterations of a `while` of `computation`.

        XLA's known trip count, or the bound in the condition less the counter's first value. The
        compiler takes iterations out of a loop whose counter then starts at 1.
        """
        known = re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes)
        if known:
            return int(known[1])
        condition = self.computations[loop.attribute("condition").lstrip("%")]
        bounds, counters = [], []
        for instruction in condition.instructions.values():
            if instruction.kind == "constant" and instruction.attributes.isdigit():
                bounds.append(int(instruction.attributes))
            elif instruction.kind == "get-tuple-element":
                counters.append(int(instruction.attribute("index")))
        first = _first_value(computation, loop, counters[0]) if counters else 0
        return max(bounds, default=1) - first


def _first_value(computation: Computation, loop: Instruction, element: int) -> int:
    """Value of an element of a loop's tuple before the loop; 0 unless it is a constant."""
    [values] = computation.operands(loop)
    if values.kind != "tuple":
        return 0
    value = computation.instructions[values.operands[element]]
    while value.kind in ("copy", "bitcast"):
        [value] = computation.operands(value)
    return int(value.attributes) if value.kind == "constant" else 0


def parse(text: str) -> Program:
    """Parses `compiled.as_text()`."""
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
            instruction = _instruction(line)
            current.instructions[instruction.name] = instruction
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
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return len(text)


def _arrays(text: str) -> tuple[Array, ...]:
    found = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        shape = tuple(int(size) for size in sizes.split(",") if size)
        found.append(Array(dtype, shape, "S(" not in layout))
    return tuple(found)
