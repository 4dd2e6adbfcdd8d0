"""rows: dot and convert, 16 bytes a thread; lanes share a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cuda.attention_backward.shared import CudaAttentionBackwardFamily, early
from tilewright.backends.cuda.pipelines import Fields
from tilewright.dataclass import dataclass
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation


@dataclass(frozen=True, slots=True)
class RowsSchedule:
    """A block takes so many rows of a head as are prepared together."""

    pipeline: str = field(default="rows", init=False)

    pipelines: ClassVar[tuple[str, ...]] = ("rows",)
    serves: ClassVar[tuple[str, ...]] = ("dot", "convert")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return self.pipeline


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

    def violations(
        self, signature: AttentionBackwardSignature, schedule: RowsSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return iter(())

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"none": 0}

    def config(self, spec: KernelSpec) -> Fields:
        return {"early": early(spec)}


FAMILY = Rows()
