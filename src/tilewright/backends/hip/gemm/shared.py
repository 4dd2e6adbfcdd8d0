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
        return {"family": self.name, "limits": self.numbers(spec)}
