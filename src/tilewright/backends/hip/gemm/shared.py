"""What the HIP families of GEMM share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.families import Family
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.family import GemmFamily
from tilewright.ops.gemm.schedule import Shape


def tile_numbers(tile: Shape) -> dict[str, int]:
    return dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True))


class HipGemmFamily(Family, GemmFamily):
    """A family of GEMM kernels on AMD GPUs."""

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        # What a kernel is estimated by is no part of it: another model of its code must not build it anew.
        limits = {name: value for name, value in self.numbers(spec).items() if name != "issue"}
        return {"family": self.name, "limits": limits}
