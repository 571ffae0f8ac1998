"""TPU chips and slices by name, with the vendor's specifications; arithmetic only, no jax.

Sources: each chip's page, "TPU regions and zones" and "TPU software versions" under
docs.cloud.google.com/tpu, and "Plan TPUs in GKE" for machines and node labels. Not checked against
those pages: host memory, v4's link speed and some of the zones.
"""

import difflib
import math
import re
from dataclasses import dataclass

from realm_jax.errors import InputError

GIB = 2**30
_SHAPES_2D = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_ONE_MACHINE = "2x4"  # of eight chips on Cloud TPU
_SHAPES_3D = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16")


@dataclass(frozen=True)
class Chip:
    """One kind of chip; the compiler treats each chip of these kinds as one device.

    Attributes:
      flops: dense bfloat16 FLOPs per second.
      hbm_bytes: device memory.
      hbm_bandwidth: bytes per second.
      ici_bandwidth: bytes per second that a chip sends over all its links to other chips.
      node_bytes: memory of one machine with `node_chips` chips.
      shapes: shapes of its slices.
      cloud: prefix of Cloud TPU's `--accelerator-type`.
      cores: cores per chip; the number after the prefix counts them.
      runtime: Cloud TPU's `--runtime-version`.
      gke: value of the node label `cloud.google.com/gke-tpu-accelerator`.
      zones: zones where Cloud TPU offers it.
      node_chips: chips of one machine of a slice; see `Slice.hosts`.
    """

    flops: float
    hbm_bytes: int
    hbm_bandwidth: float
    ici_bandwidth: float
    node_bytes: int
    shapes: tuple[str, ...]
    cloud: str
    cores: int
    runtime: str
    gke: str
    zones: tuple[str, ...]
    node_chips: int = 4


# fmt: off
CHIPS = {
    # FLOPs, HBM, HBM bandwidth, ICI bandwidth, host memory, shapes,
    # accelerator type, cores, runtime, GKE label, zones
    "v4": Chip(
        275e12, 32 * GIB, 1228e9, 300e9, 407 * 10**9, _SHAPES_3D,
        "v4", 2, "tpu-ubuntu2204-base", "tpu-v4-podslice", ("us-central2-b",),
    ),
    "v5e": Chip(
        197e12, 16 * GIB, 819e9, 200e9, 192 * 10**9, _SHAPES_2D,
        "v5litepod", 1, "v2-alpha-tpuv5-lite", "tpu-v5-lite-podslice",
        ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
    ),
    "v5p": Chip(
        459e12, 95 * GIB, 2765e9, 600e9, 448 * 10**9, _SHAPES_3D,
        "v5p", 2, "v2-alpha-tpuv5", "tpu-v5p-slice",
        ("us-central1-a", "us-east5-a", "europe-west4-b"),
    ),
    "v6e": Chip(
        918e12, 32 * GIB, 1638e9, 400e9, 720 * 10**9, _SHAPES_2D,
        "v6e", 1, "v2-alpha-tpuv6e", "tpu-v6e-slice",
        ("us-central1-b", "us-east1-d", "us-east5-a", "us-east5-b", "europe-west4-a",
         "asia-northeast1-b"),
    ),
}
# fmt: on


@dataclass(frozen=True)
class Slice:
    """Chips joined by direct links (ICI), as in `v5e:8x8`, or several such slices, `2xv5e:8x8`.

    A machine has four chips. Two slices are an exception: on Cloud TPU, `v5e:2x4` and `v6e:2x4` are
    one machine with eight chips. GKE has both kinds of nodes for them; we use those of four chips.
    """

    kind: str
    shape: str
    slices: int = 1

    @property
    def name(self) -> str:
        """The name that users write: CHIP:SHAPE, or NxCHIP:SHAPE for N slices."""
        return f"{self.slices}x{self.one_slice}" if self.slices > 1 else self.one_slice

    @property
    def one_slice(self) -> str:
        """The name of one of its slices, CHIP:SHAPE."""
        return f"{self.kind}:{self.shape}"

    @property
    def chip(self) -> Chip:
        """Specification of its chips."""
        return CHIPS[self.kind]

    @property
    def chips(self) -> int:
        """Number of chips of all slices."""
        return self.slices * math.prod(int(size) for size in self.shape.split("x"))

    @property
    def nodes(self) -> int:
        """Number of nodes with `node_chips` chips on GKE."""
        return self.chips // self.chip.node_chips

    @property
    def hosts(self) -> int:
        """Number of machines on Cloud TPU."""
        return self.slices if self.shape == _ONE_MACHINE else self.nodes

    @property
    def host_bytes(self) -> int:
        """Memory of one machine on Cloud TPU."""
        return self.chip.node_bytes * self.nodes // self.hosts

    @property
    def accelerator_type(self) -> str:
        """Cloud TPU's name for this many chips."""
        return f"{self.chip.cloud}-{self.chips * self.chip.cores}"


def known_slices() -> list[str]:
    """All names that `slice_of` accepts."""
    return [f"{kind}:{shape}" for kind, chip in CHIPS.items() for shape in chip.shapes]


def slice_of(name: str, flag: str = "--topology") -> Slice:
    """Parses the name of a slice.

    Args:
      name: CHIP:SHAPE or NxCHIP:SHAPE.
      flag: command-line flag to name in the error message.

    Raises:
      InputError: an unknown name; lists all known names.
    """
    count, one = _split(name)
    if one in known_slices():
        kind, shape = one.split(":")
        return Slice(kind, shape, count)
    near = difflib.get_close_matches(name, known_slices(), n=1, cutoff=0.3)
    known = "; ".join(f"{kind}: {' '.join(chip.shapes)}" for kind, chip in CHIPS.items())
    raise InputError(
        "unknown topology",
        where=flag,
        expected=f"CHIP:SHAPE or NxCHIP:SHAPE, one of {known}",
        found=name,
        fix=f"did you mean {near[0]}?" if near else None,
    )


def _split(name: str) -> tuple[int, str]:
    """Number of slices and name of one, from CHIP:SHAPE or NxCHIP:SHAPE."""
    found = re.fullmatch(r"([1-9]\d?)x([a-z].*)", name)
    return (int(found[1]), found[2]) if found else (1, name)
