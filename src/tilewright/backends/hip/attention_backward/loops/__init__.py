"""loops: any size, stride, element type and feature, on every GPU; the loops that CUDA has too.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.shared import HipAttentionBackwardFamily
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec


class Loops(HipAttentionBackwardFamily):
    """The stages that memory decides are those of `rows`, which takes anything."""

    name = "loops"
    schedules = (LoopsSchedule,)

    def host(self, spec: KernelSpec) -> str:
        family = spec.signature.family
        return f"AttentionBackward{'Loops' if family == 'grad' else family.capitalize()}"

    def header(self, spec: KernelSpec) -> str:
        return self.name if spec.signature.family == "grad" else "rows"

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        """In every pool but those of CK Tile's dispatcher."""
        if pool not in POOLS:
            yield LoopsSchedule()


FAMILY = Loops()
