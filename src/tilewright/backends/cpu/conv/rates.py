"""What the cost of CPU kernels of convolution is counted in: `Rates` of cost.h.

Fitted to single-thread runs on an AVX-512 server core that starts one vector multiply-add a cycle; only their
proportions matter for a choice, never a report.
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


def rates(arch: Arch) -> Mapping[str, float]:
    return fitted("cpu_conv", Constants, arch.name)._asdict()
