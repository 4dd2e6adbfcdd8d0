"""What the costs of attention's gradients on NVIDIA GPUs are counted in: `Rates` of cost.h.

ws     a step is a tile of rows that meets a tile of keys: its products, what is done to scores, and barriers; blocks
       fill waves, of which the last is not full
mma    the same of seven products a pair, with instructions of one warp
rows   bytes
loops  products of plain threads
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch, fitted
from tilewright.arch.rates import ComputeUnits, Cycles, Fma, Launch, Memory, UnitMma, UnitWgmma
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """What depends on the device: `attention_backward` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end a tile of keys
    unit_macs: UnitWgmma  # products a second of one multiprocessor
    score: Cycles  # of an entry, as far as products do not hide it
    step: Cycles  # of barriers and the like
    memory: Memory  # bytes a second
    mma_unit_macs: UnitMma
    mma_step: Cycles
    loop_macs: Fma  # products of the loops a second


def rates(arch: Arch) -> Mapping[str, float]:
    constants = fitted("attention_backward", Constants, arch.name)._asdict()
    return {name: value for name, value in constants.items() if name != "units"}


def arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"compute_units": max(1, arch.compute_units)}
