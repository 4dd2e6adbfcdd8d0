"""What the costs of attention's gradients on AMD GPUs are counted in: `Rates` of cost.h, from the arch table."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch import Arch, fit_source
from tilewright.arch import arch as arch_by_name
from tilewright.arch.rates import Fma, Launch
from tilewright.backends.hip.fits import constants
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """`hip_attention_backward` of the fits in the arch table."""

    start: Launch
    loops: Fma  # products of the loops a second
    share: float  # of the arch's rate that a well filled kernel reaches
    memory_share: float


def rates(arch: Arch) -> Mapping[str, float]:
    own = constants("hip_attention_backward", Constants, arch)
    peak = arch.rates or arch_by_name(fit_source("hip_attention_backward", arch.name)).rates
    assert peak is not None, "a fit is of an arch with rates"
    flops = {"fp32": peak.fma, **{name: peak.mma.get(name) or peak.mma["fp16"] for name in ("fp16", "bf16")}}
    return {
        "start": own.start, "loops": own.loops, "memory": own.memory_share * peak.memory,
        **{f"flops_{name}": own.share * each for name, each in flops.items()},
    }  # fmt: skip


def arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"compute_units": max(1, arch.compute_units)}
