"""The matrix instructions that our own kernels use: as `hip/matrix.h` has them."""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES

SIDE = 16  # sums of an instruction along m and n
ACCESS_BYTES = 16
MOST_AT_ONCE = 64  # words of fragments, up to which all steps of a stage are written out: as `MatrixProduct::at_once`


class Instruction(NamedTuple):
    """A matrix instruction of 16 x 16 sums."""

    bytes: int  # that a lane holds of a line
    groups: int  # lanes that hold parts of the same line


def has_matrix(arch: Arch) -> bool:
    """Whether the arch has matrix instructions."""
    return bool({"mfma", "wmma"} & arch.features)


def multiplies(dtype: str, arch: Arch) -> bool:
    """Whether the arch has an instruction for elements of 16 bits or more: RDNA 3 and 4 have none for fp32."""
    return has_matrix(arch) and (dtype != "fp32" or bool({"mfma", "wmma-fp32"} & arch.features))


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
    if "wmma-k32" in arch.features:
        return Instruction(8 if dtype == "fp32" else 2 * ACCESS_BYTES, 2)
    groups = 1 if arch.name.startswith("gfx11") else 2
    return Instruction(SIDE * DTYPES[dtype].bytes // groups, groups)


def lane_bytes(dtype: str, arch: Arch, deep: int) -> int:
    """Bytes of a line that a lane reads at once: as `Matrix::bytes`."""
    unit, size = instruction(dtype, arch), DTYPES[dtype].bytes
    if unit.groups == 1:
        return unit.bytes
    most = ACCESS_BYTES
    while most > unit.bytes and unit.groups * most // size > deep:
        most //= 2
    return max(most, unit.bytes)


def least_deep(dtype: str, arch: Arch) -> int:
    """k of one instruction, or 16 bytes if that is more."""
    unit, size = instruction(dtype, arch), DTYPES[dtype].bytes
    return max(unit.groups * unit.bytes, ACCESS_BYTES) // size


def lane_registers(waves: int, arch: Arch) -> int:
    """Of a lane in a block of so many waves, with sums in accumulation registers where there are such."""
    of_simd = -(-waves // max(1, arch.simds))
    return min(arch.vector_registers + arch.accumulator_registers, arch.simd_registers // of_simd)
