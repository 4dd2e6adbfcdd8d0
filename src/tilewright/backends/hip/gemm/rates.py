"""What the cost of HIP kernels of GEMM is counted in: `Rates` of cost.h.

Three costs: the matrix units over whole rounds of blocks, the bytes that must come from memory, and starting.  The
peaks are the data sheets'; only the order of the answers matters.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch

CLOCK = 2.0e9
MACS_A_CLOCK = {4: 128, 2: 1024, 1: 2048}  # of one compute unit, by the bytes of an element
LOOPS_MACS_A_CLOCK = 16  # of what vector units could, most goes into feeding them
MEMORY = 3.0e12  # bytes a second
START = 4.0e-6
# What a pipeline reaches of the peak once it runs, and turns of the k loop before it does.
SHARE = {"compv4": 0.70, "compv3": 0.62, "preshuffle": 0.62, "mem": 0.40, "compv5": 0.25}
RAMP = {"compv4": 2.0, "compv3": 1.5, "preshuffle": 1.5, "mem": 1.0, "compv5": 1.0}


def rate_numbers(arch: Arch) -> Mapping[str, float]:
    return {
        "clock": CLOCK, "loops_macs": LOOPS_MACS_A_CLOCK, "memory": MEMORY, "start": START,
        **{f"macs_{size}": each for size, each in MACS_A_CLOCK.items()},
        **{f"share_{name}": share for name, share in SHARE.items()},
        **{f"ramp_{name}": turns for name, turns in RAMP.items()},
    }  # fmt: skip
