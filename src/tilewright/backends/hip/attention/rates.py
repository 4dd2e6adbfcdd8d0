"""What the costs of attention on AMD GPUs are counted in: `Rates` of cost.h, from the data sheets of the arch table."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch
from tilewright.ops.attention.spec import INPUTS

START = 5e-6
LOOPS = 5e11  # products of the loops a second
SHARE = 0.4  # of the data sheet's rate that a well filled kernel reaches
MEMORY_SHARE = 0.7


def rates(arch: Arch) -> Mapping[str, float]:
    sheet = next(iter((arch.data_sheets or {}).values()), {})
    flops = {f"flops_{name}": SHARE * sheet.get(name, 1e14) for name in INPUTS}
    return {"start": START, "loops": LOOPS, "memory": MEMORY_SHARE * sheet.get("memory", 1e12), **flops}


def arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"compute_units": max(1, arch.compute_units)}
