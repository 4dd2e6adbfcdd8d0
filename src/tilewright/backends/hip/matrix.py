"""The matrix instructions that our own kernels use: as `hip/matrix.h` has them."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES

SIDE = 16  # sums of an instruction along m and n


class Instruction(NamedTuple):
    """A matrix instruction of 16 x 16 sums."""

    bytes: int  # that a lane holds of a line
    groups: int  # lanes that hold parts of the same line


def has_matrix(arch: Arch) -> bool:
    """Whether the kernels know the arch's matrix instructions.  gfx1250's are others, of which nothing was executed."""
    return bool({"mfma", "wmma"} & arch.features) and "wmma-k32" not in arch.features


def is_fp8(dtype: str) -> bool:
    return dtype.startswith("fp8")


def instruction(dtype: str, arch: Arch) -> Instruction:
    if "mfma" in arch.features:
        groups = 4
        if dtype == "fp32":
            return Instruction(4, groups)
        if is_fp8(dtype):
            return Instruction(8, groups)
        if arch.name == "gfx950":
            return Instruction(16, groups)
        if dtype == "int8":
            return Instruction(8 if arch.name == "gfx942" else 4, groups)
        return Instruction(4 if dtype == "bf16" and arch.name == "gfx908" else 8, groups)
    groups = 1 if arch.name.startswith("gfx11") else 2
    return Instruction(SIDE * DTYPES[dtype].bytes // groups, groups)
