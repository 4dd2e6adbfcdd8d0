"""rows: dot and convert, 16 bytes a thread; lanes share a row."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.shared import HipAttentionBackwardFamily
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec


class Rows(HipAttentionBackwardFamily):
    name = "rows"
    schedules = (RowsSchedule,)

    def host(self, spec: KernelSpec) -> str:
        return f"AttentionBackward{spec.signature.family.capitalize()}"

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[RowsSchedule]:
        """In every pool but those of CK Tile's dispatcher."""
        if pool not in POOLS and signature.family in RowsSchedule.serves:
            yield RowsSchedule()


FAMILY = Rows()
