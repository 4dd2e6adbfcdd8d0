"""What the cost of CPU kernels of attention is counted in: `Rates` of cost.h.

The model counts cycles of the busiest thread: vector multiply-adds with lanes that hold no row, exponentials, what is
packed, what a tile costs however short its keys, and bytes from memory.  The constants were fitted to single-thread
runs on an AVX-512 server core that starts one such multiply-add a cycle; only their proportions matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch, fitted
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`cpu_attention` of the fits in the arch table: nothing scales them to another CPU."""

    cycles_per_second: float
    call: float  # cycles of any call
    wake: float  # more when a team is woken
    memory: float  # bytes a cycle one core gets from memory
    loop: float  # cycles of a product in plain loops
    weight: float  # a vector of scores made weights
    touch: float  # and met by a bias, a mask, a cap
    tile: float  # a tile of rows
    turn: float  # a vector of it transposed, there and back
    pack: float  # a vector of a key or value packed
    fold: float  # a product of lanes summed up
    block: float  # a block of keys of a decode kernel
    row: float  # and each row, or vector of rows, in it
    near: float  # bytes between keys that a decode kernel reads in place, though lanes are rows
    items: float  # below, keys are shared among threads


def rates(arch: Arch) -> Mapping[str, float]:
    return fitted("cpu_attention", Constants, arch.name)._asdict()
