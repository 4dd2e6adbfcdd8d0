"""rows: dot and convert, a row at a time in vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.attention_backward.shared import CpuAttentionBackwardFamily
from tilewright.dataclass import dataclass
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec


@dataclass(frozen=True, slots=True)
class CpuRowsSchedule:
    """A thread takes some rows of one head."""

    pipeline: str = field(default="rows", init=False)
    rows: int = 64

    pipelines: ClassVar[tuple[str, ...]] = ("rows",)
    serves: ClassVar[tuple[str, ...]] = ("dot", "convert")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"rows_{self.rows}"


class Rows(CpuAttentionBackwardFamily):
    name = "rows"
    schedules = (CpuRowsSchedule,)

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[CpuRowsSchedule]:
        if signature.family not in CpuRowsSchedule.serves:
            return
        for rows in (128,) if pool == "default" else (32, 128, 512):
            yield CpuRowsSchedule(rows)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuRowsSchedule = spec.schedule
        return {"rows": h.rows}

    def config(self, schedule: CpuRowsSchedule) -> Mapping[str, int]:
        return {"rows": schedule.rows}

    def work(self, spec: KernelSpec) -> str:
        return "AttentionDotRows" if spec.signature.family == "dot" else "AttentionConvertRows"


FAMILY = Rows()
