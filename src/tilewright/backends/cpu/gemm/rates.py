"""What the cost of CPU kernels of GEMM is counted in: `Rates` of cost.h.

Fitted to single-thread runs on an AVX-512 server core (docs/architecture.md); only their proportions matter for a
choice, never a report.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch, fitted
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`cpu_gemm` of the fits in the arch table: nothing scales them to another CPU."""

    cycles_per_second: float
    call: float  # cycles of any call
    wake: float  # more when a team is woken
    memory: float  # bytes a cycle one core gets from memory
    # Cycles a word of A: rows copied (from beyond the cache), columns transposed.
    pack_a: float
    pack_a_far: float
    turn_a: float
    # Of B in the second-level cache, beyond it, and transposed.
    pack_b_near: float
    pack_b_far: float
    turn_b: float
    # Cycles a sum: the lanes of one added up, and stored across rows.
    fold: float
    fold_transposed: float
    ways: float  # of a second-level cache of today


def rates(arch: Arch) -> Mapping[str, float]:
    return fitted("cpu_gemm", Constants, arch.name)._asdict()
