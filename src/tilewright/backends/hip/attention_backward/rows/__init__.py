"""rows: dot and convert, 16 bytes a thread; lanes share a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.shared import HipAttentionBackwardFamily
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


class Rows(HipAttentionBackwardFamily):
    name = "rows"
    schedules = (RowsSchedule,)

    def host(self, spec: KernelSpec) -> str:
        return f"AttentionBackward{spec.signature.family.capitalize()}"

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[RowsSchedule]:
        """In every pool but those of CK Tile's dispatcher."""
        if pool not in POOLS and signature.family in RowsSchedule.serves:
            yield RowsSchedule()

    def violations(
        self, signature: AttentionBackwardSignature, schedule: RowsSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return iter(())

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"none": 0}


FAMILY = Rows()
