"""combine: parts put together, a team of warps for a row of one head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.attention.shared import CudaAttentionFamily
from tilewright.backends.cuda.pipelines import Fields, flag
from tilewright.dataclass import dataclass
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

WARPS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class CombineSchedule:
    """Parts put together: a team of warps for a row of one head, who share the parts."""

    pipeline: str = field(default="combine", init=False)
    warps: int

    pipelines: ClassVar[tuple[str, ...]] = ("combine",)
    serves: ClassVar[tuple[str, ...]] = ("combine",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"combine_warps{self.warps}"


class Combine(CudaAttentionFamily):
    name = "combine"
    schedules = (CombineSchedule,)
    device, host = "TW_DEVICE_ATTENTION_COMBINE", "HostAttentionCombine"

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CombineSchedule]:
        if signature.family == "combine":
            yield from map(CombineSchedule, (1, 4) if pool == "default" else WARPS)

    def violations(self, signature: AttentionSignature, schedule: CombineSchedule, arch: Arch) -> Iterator[Violation]:
        if schedule.warps not in WARPS:
            yield Violation("nv-warps", f"{schedule.warps} warps share the splits of a row", "use 1, 2, 4 or 8")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"warps": spec.schedule.warps}

    def config(self, spec: KernelSpec) -> Fields:
        early = "wgmma" in arch_by_name(spec.arch).features  # from sm_90 on
        return {"warps": spec.schedule.warps, "early": flag(early)}


FAMILY = Combine()
