"""loops: any size, stride, element type and feature; dot and convert too.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cuda.attention_backward.shared import CudaAttentionBackwardFamily, early
from tilewright.backends.cuda.pipelines import Fields
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec


class Loops(CudaAttentionBackwardFamily):
    """The stages that memory decides are those of `rows`, which takes anything."""

    name = "loops"
    schedules = (LoopsSchedule,)

    def device(self, spec: KernelSpec) -> str:
        family = spec.signature.family
        return f"TW_DEVICE_ATTENTION_BACKWARD_{'LOOPS' if family == 'grad' else family.upper()}"

    def host(self, spec: KernelSpec) -> str:
        family = spec.signature.family
        return f"HostAttentionBackward{'Loops' if family == 'grad' else family.capitalize()}"

    def headers(self, spec: KernelSpec) -> str:
        return self.name if spec.signature.family == "grad" else "rows"

    def beside(self, spec: KernelSpec) -> tuple[str, ...]:
        return {"grad": ("_dq", "_dbias", "_dalibi"), "dot": ("_dsink",)}.get(spec.signature.family, ())

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        yield LoopsSchedule()

    def config(self, spec: KernelSpec) -> Fields:
        return {"early": early(spec)}


FAMILY = Loops()
