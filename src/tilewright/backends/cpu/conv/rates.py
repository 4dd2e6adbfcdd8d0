"""What the cost of CPU kernels of convolution is counted in: `Rates` of cost.h.

Fitted to single-thread runs on an AVX-512 server core that starts one vector multiply-add a cycle, but for `single` and
`multiply`; only their proportions matter for a choice, never a report.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch, fitted
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`cpu_conv` of the fits in the arch table: nothing scales them to another CPU."""

    cycles_per_second: float
    call: float  # cycles of any call
    wake: float  # more when a team is woken
    memory: float  # bytes a cycle one core gets from memory
    # How much longer a multiply-add takes in a register block of one vector, which has a broadcast and more of the row
    # pointers for itself.  Cores that start two multiply-adds a cycle start no more loads than that; by llvm-mca 0.59
    # cycles, 0.51 of other blocks with AVX2 (Haswell, Skylake, Zen 2), and 0.70, 0.54 with AVX-512 (Skylake, Ice Lake).
    # A Zen 4, of the levels with bf16, starts one multiply-add of 512 bits a cycle.
    single: float
    # Cycles of a vector's multiply-add in a loop whose accumulators stay in registers: the fit counts with one.
    multiply: float
    # Both, of a host that starts two multiply-adds in a cycle where others of its level start one (`dual_fma`).
    single_dual: float
    multiply_dual: float


def rates(arch: Arch) -> Mapping[str, float]:
    return fitted("cpu_conv", Constants, arch.name)._asdict()
