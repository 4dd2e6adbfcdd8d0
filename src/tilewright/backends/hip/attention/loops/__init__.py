"""loops: any size, stride, element type and feature, on every GPU; the loops that CUDA has too.  The fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.families import Family
from tilewright.backends.hip.attention.ck_tile.profiles import POOLS
from tilewright.backends.hip.attention.tiled import matrix_rules
from tilewright.ops.attention.family import AttentionFamily
from tilewright.ops.attention.schedule import LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec


class Loops(Family, AttentionFamily):
    name = "loops"
    schedules = (LoopsSchedule,)
    template = ("tilewright.backends.hip.attention", "attention.hpp.jinja")

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[LoopsSchedule]:
        """Where nothing multiplies by matrix instructions, but in the pools of CK Tile's dispatcher; and in those that
        are there to try everything or little."""
        alone = next(matrix_rules(signature, arch), None) is not None
        if pool not in POOLS and (alone or pool in ("tiny", "tests")):
            yield LoopsSchedule()

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {
            "family": self.name, "kernel": "AttentionLoopsKernel", "fields": {}, "route": "", "pipeline": "",
            "multiplied": "", "shared": False, "limits": self.numbers(spec),
        }  # fmt: skip


FAMILY = Loops()
