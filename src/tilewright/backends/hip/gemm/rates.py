"""What the cost of HIP kernels of GEMM is counted in: `Rates` of cost.h, from the fits in the arch table.

Three costs: the matrix units over whole rounds of blocks, the bytes that must come from memory, and starting.  The
peaks are the data sheets'; only the order of the answers matters.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch
from tilewright.arch.rates import Launch, Memory, UnitClock, UnitMmaCycle
from tilewright.backends.hip.fits import constants
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`hip_gemm` of the fits in the arch table."""

    clock: UnitClock
    macs_4: float  # multiply-adds a clock of one compute unit, by the bytes of an element
    macs_2: UnitMmaCycle
    macs_1: UnitMmaCycle
    loops_macs: float  # of what vector units could, most goes into feeding them
    memory: Memory  # bytes a second
    start: Launch
    # What a pipeline reaches of the peak once it runs...
    share_compv3: float
    share_compv4: float
    share_compv5: float
    share_mem: float
    share_preshuffle: float
    share_tiled: float
    # ...and turns of the k loop before it does.
    ramp_compv3: float
    ramp_compv4: float
    ramp_compv5: float
    ramp_mem: float
    ramp_preshuffle: float
    ramp_tiled: float


def rate_numbers(arch: Arch) -> Mapping[str, float]:
    return constants("hip_gemm", Constants, arch)._asdict()
