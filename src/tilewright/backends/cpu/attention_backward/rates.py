"""What the cost of CPU kernels of attention's gradients is counted in: `Rates` of cost.h.

The model counts cycles of the busiest thread: vector multiply-adds with lanes that hold no row, exponentials, what is
packed and transposed, and bytes from memory.  The constants were fitted to single-thread runs on an AVX-512 server core
that starts one such multiply-add a cycle; only their proportions matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch, fitted
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`cpu_attention_backward` of the fits in the arch table: nothing scales them to another CPU."""

    cycles_per_second: float
    call: float  # cycles of any call
    wake: float  # more when a team is woken
    memory: float  # bytes a cycle one core gets from memory
    loop: float  # cycles of a product in plain loops
    multiply: float  # a vector multiply-add with what is loaded for it
    weight: float  # a vector of scores made weights and gradients
    touch: float  # and met by a bias, a mask, a cap
    block: float  # a tile of rows and a block of keys
    pack: float  # a vector of rows or keys packed or transposed


def rates(arch: Arch) -> Mapping[str, float]:
    return fitted("cpu_attention_backward", Constants, arch.name)._asdict()
