"""rows: dot and convert, 16 bytes a thread; lanes share a row."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.cuda.attention_backward.shared import CudaAttentionBackwardFamily, early
from tilewright.backends.cuda.pipelines import Fields
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec


class Rows(CudaAttentionBackwardFamily):
    name = "rows"
    schedules = (RowsSchedule,)

    def device(self, spec: KernelSpec) -> str:
        return f"TW_DEVICE_ATTENTION_BACKWARD_{spec.signature.family.upper()}"

    def host(self, spec: KernelSpec) -> str:
        return f"HostAttentionBackward{spec.signature.family.capitalize()}"

    def beside(self, spec: KernelSpec) -> tuple[str, ...]:
        return ("_dsink",) if spec.signature.family == "dot" else ()

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[RowsSchedule]:
        if signature.family in RowsSchedule.serves:
            yield RowsSchedule()

    def config(self, spec: KernelSpec) -> Fields:
        return {"early": early(spec)}


FAMILY = Rows()
