"""TPU chips and slices by name, with the vendor's figures; arithmetic only, no jax.

Where to check them: the pages of each chip, "TPU regions and zones" and "TPU software versions"
under docs.cloud.google.com/tpu, and "Plan TPUs in GKE" for machines and node labels. Host memory,
the link speed of v4 and some of the zones were put down without those pages at hand.
"""

import difflib
import math
from dataclasses import dataclass

from realm_jax.errors import InputError

GIB = 2**30
_FLAT = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16")


@dataclass(frozen=True)
class Chip:
    """One kind of chip; the compiler sees each chip of these kinds as one device.

    Attributes:
      flops: per second, dense bfloat16.
      hbm_bytes: of device memory.
      hbm_bandwidth: bytes per second.
      ici_bandwidth: bytes per second that leave a chip over all its links to other chips.
      host_chips: chips of one machine of a slice.
      host_bytes: memory of that machine.
      shapes: of slices.
      cloud: how Cloud TPU's `--accelerator-type` begins.
      cores: what the number after it counts for each chip.
      runtime: Cloud TPU's `--runtime-version`.
      zones: where Cloud TPU has it.
      gke: value of the node label `cloud.google.com/gke-tpu-accelerator`.
    """

    flops: float
    hbm_bytes: int
    hbm_bandwidth: float
    ici_bandwidth: float
    host_chips: int
    host_bytes: int
    shapes: tuple[str, ...]
    cloud: str
    cores: int
    runtime: str
    zones: tuple[str, ...]
    gke: str


CHIPS = {
    "v4": Chip(
        flops=275e12,
        hbm_bytes=32 * GIB,
        hbm_bandwidth=1228e9,
        ici_bandwidth=300e9,
        host_chips=4,
        host_bytes=407 * 10**9,
        shapes=_CUBES,
        cloud="v4",
        cores=2,
        runtime="tpu-ubuntu2204-base",
        zones=("us-central2-b",),
        gke="tpu-v4-podslice",
    ),
    "v5e": Chip(
        flops=197e12,
        hbm_bytes=16 * GIB,
        hbm_bandwidth=819e9,
        ici_bandwidth=200e9,
        host_chips=4,
        host_bytes=192 * 10**9,
        shapes=_FLAT,
        cloud="v5litepod",
        cores=1,
        runtime="v2-alpha-tpuv5-lite",
        zones=("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"),
        gke="tpu-v5-lite-podslice",
    ),
    "v5p": Chip(
        flops=459e12,
        hbm_bytes=95 * GIB,
        hbm_bandwidth=2765e9,
        ici_bandwidth=600e9,
        host_chips=4,
        host_bytes=448 * 10**9,
        shapes=_CUBES,
        cloud="v5p",
        cores=2,
        runtime="v2-alpha-tpuv5",
        zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
        gke="tpu-v5p-slice",
    ),
    "v6e": Chip(
        flops=918e12,
        hbm_bytes=32 * GIB,
        hbm_bandwidth=1638e9,
        ici_bandwidth=400e9,
        host_chips=4,
        host_bytes=720 * 10**9,
        shapes=_FLAT,
        cloud="v6e",
        cores=1,
        runtime="v2-alpha-tpuv6e",
        zones=(
            "us-central1-b",
            "us-east1-d",
            "us-east5-a",
            "us-east5-b",
            "europe-west4-a",
            "asia-northeast1-b",
        ),
        gke="tpu-v6e-slice",
    ),
}


@dataclass(frozen=True)
class Slice:
    """Chips that their own links join, as in `v5e:8x8`."""

    kind: str
    shape: str

    @property
    def name(self) -> str:
        """As users write it."""
        return f"{self.kind}:{self.shape}"

    @property
    def chip(self) -> Chip:
        """What it is made of."""
        return CHIPS[self.kind]

    @property
    def chips(self) -> int:
        """How many."""
        return math.prod(int(size) for size in self.shape.split("x"))

    @property
    def hosts(self) -> int:
        """Machines; a slice smaller than one machine's chips is one machine."""
        return max(1, self.chips // self.chip.host_chips)

    @property
    def accelerator_type(self) -> str:
        """Cloud TPU's name of this many chips."""
        return f"{self.chip.cloud}-{self.chips * self.chip.cores}"


def known_slices() -> list[str]:
    """All names that `slice_of` takes."""
    return [f"{kind}:{shape}" for kind, chip in CHIPS.items() for shape in chip.shapes]


def slice_of(name: str, flag: str = "--topology") -> Slice:
    """The slice of a name, which was given by `flag`.

    Raises:
      InputError: an unknown one; lists all that are known.
    """
    if name in known_slices():
        return Slice(*name.split(":"))
    near = difflib.get_close_matches(name, known_slices(), n=1, cutoff=0.3)
    known = "; ".join(f"{kind}: {' '.join(chip.shapes)}" for kind, chip in CHIPS.items())
    raise InputError(
        "unknown topology",
        where=flag,
        expected=f"CHIP:SHAPE, one of {known}",
        found=name,
        fix=f"did you mean {near[0]}?" if near else None,
    )
