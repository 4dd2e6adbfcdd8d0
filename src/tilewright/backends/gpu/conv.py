"""What the convolution kernels of every GPU share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.families import OpFamilies
from tilewright.ops.base import Violation
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules


class GpuConv(OpFamilies):
    """Convolution on a backend whose GEMM kernels it has inside."""

    op = "conv"
    product: ClassVar[OpFamilies]  # the backend's GEMM

    def signature_rules(self, signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
        """Which element types go together."""
        yield from dtype_rules(signature)

    def fallback_schedule(self, signature: ConvSignature, arch: Arch) -> LoopsSchedule:
        """The fallback: serves every problem of the signature."""
        return LoopsSchedule()

    def include_dirs(self) -> tuple[Path, ...]:
        return (*super().include_dirs(), *self.product.include_dirs())
