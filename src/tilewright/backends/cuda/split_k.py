"""What splits of k cost: kernels and their estimates count with it alike (`PartCosts` of select/parts_of_k.h)."""

from __future__ import annotations

from functools import lru_cache

from tilewright.arch import fitted
from tilewright.arch.rates import Cycles, Memory, UnitCache, UnitFma, UnitMma, UnitMmaTf32
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """What the host counts with: `split_k` of the fits in the arch table; kernels get them (arch_facts.py)."""

    plain_macs: UnitFma  # a second, of one multiprocessor: of fp32
    mma_macs: UnitMma  # of two bytes and one
    wide_macs: UnitMmaTf32  # of tf32
    wide_bytes: UnitCache  # that it takes in, a second
    sync: Cycles  # all parts there
    sums: Memory  # bytes a second that change hands


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("split_k", Constants, arch)
