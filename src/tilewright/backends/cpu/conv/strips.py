"""What the families share whose vectors run along channels, each lane in a group of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import CpuConvFamily
from tilewright.backends.cpu.vectors import lanes
from tilewright.ops.base import Violation
from tilewright.ops.conv.spec import ConvSignature


class StripFamily(CpuConvFamily):
    def block_violations(self, signature: ConvSignature, schedule: Any, arch: Arch) -> Iterator[Violation]:
        if schedule.warp_tile[1] != lanes(arch):
            message = f"warp_tile_n {schedule.warp_tile[1]}: {schedule.pipeline} works on single vectors of {arch.name}"
            yield Violation("cpu-vector", message, f"use {lanes(arch)}")
            return
        yield from super().block_violations(signature, schedule, arch)
