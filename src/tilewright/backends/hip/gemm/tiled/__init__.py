"""tiled: our own kernels, wherever an AMD GPU has a matrix instruction for the types: MFMA of CDNA, WMMA of RDNA.

Any layout, stride, size and alignment, everything fused, batches, k in parts that are added in their order.  One header
(`hip/gemm/tiled/kernel.h`) over the atoms of `hip/matrix.h`; the launch and what happens to sums are those of the CK
Tile kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.hip.gemm.code_models import issue
from tilewright.backends.hip.gemm.shared import HipGemmFamily, tile_numbers
from tilewright.backends.hip.gemm.tiled import proposals, shape
from tilewright.backends.hip.gemm.tiled.schedule import TiledSchedule
from tilewright.backends.hip.matrix import lane_registers, least_deep
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.copies import CopiedSizes
from tilewright.ops.gemm.schedule import sizes
from tilewright.ops.gemm.spec import GemmSignature

__all__ = ["FAMILY", "TiledSchedule"]

COMPILE_MEMORY = 300 << 20
MAX_THREADS = 1024
MAX_SPLIT_K = 64
# Registers of a lane for addresses and the loop; and what the compiler moves ahead, as a share of what was counted.  Of
# the kernels that were compiled to see, none with up to 328 counted spilled on CDNA, and all from 396 on; one of RDNA
# with 152 did.
BESIDE, AHEAD, AHEAD_RDNA = 16, 1.5, 1.75


def matrix_rules(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Which products these kernels have on the arch."""
    if shape.multiplied(signature, arch) is None:
        pair = f"{signature.dtype_a} times {signature.dtype_b}"
        yield Violation(
            "amd-matrix", f"{arch.name} has no matrix instruction that is exact for {pair}", "use the loops"
        )


def _is_power(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _grid(schedule: TiledSchedule, arch: Arch) -> Iterator[Violation]:
    lanes = shape.threads(schedule, arch)
    if schedule.warp_grid[2] != 1 or not _is_power(lanes) or lanes > MAX_THREADS:
        most = MAX_THREADS // arch.warp_size
        message = f"warp grid {sizes(schedule.warp_grid)}"
        yield Violation("amd-warps", message, f"use 2^n waves along m and n, up to {most}, and 1 along k")
    if schedule.stages > 2:
        yield Violation("amd-stages", f"{schedule.stages} stages", "use 1 or 2")
    if schedule.split_k > MAX_SPLIT_K:
        yield Violation("amd-split-k", f"split_k {schedule.split_k} is over {MAX_SPLIT_K}", f"use 1 to {MAX_SPLIT_K}")
    if not all(_is_power(side) for side in schedule.tile):
        yield Violation("amd-tile-size", f"tile {sizes(schedule.tile)}", "use powers of two")


def _tile(signature: GemmSignature, schedule: TiledSchedule, arch: Arch) -> Iterator[Violation]:
    lanes, deep = shape.threads(schedule, arch), schedule.tile[2]
    for name, dtype, as_, lines, along_k in shape.operands(signature, schedule, arch):
        least = least_deep(as_, arch)
        if deep % least:
            message = f"tile_k {deep} of {name}: an instruction or an access of {as_} takes {least}"
            yield Violation("amd-tile-size", message, f"use tile_k {least} or more")
            return
        if not shape.share(dtype, as_, lines, deep, lanes, along_k).whole(lines, deep, lanes, along_k):
            message = f"{lanes} threads do not share out {lines} lines of {name}, {deep} deep"
            yield Violation("amd-tile-vector", message, "use a larger tile or fewer waves")
            return
    kinds = shape.multiplied(signature, arch)
    assert kinds is not None
    if (bytes_ := shape.lds_bytes(schedule, DTYPES[kinds[0]].bytes)) > arch.scratch_bytes:
        message = f"{bytes_} bytes of LDS, and there are {arch.scratch_bytes}"
        yield Violation("amd-lds", message, "use a smaller tile, or one stage")
    most = most_registers(schedule, arch)
    if (wanted := wanted_registers(signature, schedule, arch)) > most:
        message = f"a lane wants {wanted} registers and has {most}: over that it spills"
        yield Violation("amd-registers", message, "use a smaller tile or more waves")


def wanted_registers(signature: GemmSignature, schedule: TiledSchedule, arch: Arch) -> int:
    ahead = AHEAD_RDNA if "wmma" in arch.features else AHEAD
    return int(shape.registers(signature, schedule, arch) * ahead) + BESIDE


def most_registers(schedule: TiledSchedule, arch: Arch) -> int:
    return lane_registers(shape.threads(schedule, arch) // arch.warp_size, arch)


class Tiled(HipGemmFamily):
    name = "tiled"
    schedules = (TiledSchedule,)
    template = ("tilewright.backends.hip.gemm.tiled", "tiled.hpp.jinja")

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[TiledSchedule]:
        if next(matrix_rules(signature, arch), None) is None:
            yield from proposals.proposals(pool, signature, arch)

    def lacks(self, signature: GemmSignature, arch: Arch) -> bool:
        """Whether there is no product of these types."""
        return next(matrix_rules(signature, arch), None) is not None

    def packed(self, signature: GemmSignature, arch: Arch) -> TiledSchedule:
        """What reads a packed B, whatever its size."""
        schedules = list(proposals.small(signature, arch))
        legal = (each for each in schedules if next(self.violations(signature, each, arch), None) is None)
        return next(legal, schedules[-1])

    def pack_format(self, schedule: TiledSchedule) -> tuple[object, ...]:
        """A packed B is the columns of B, one after the other, whatever B's layout was."""
        return ("columns",)

    def violations(self, signature: GemmSignature, schedule: TiledSchedule, arch: Arch) -> Iterator[Violation]:
        missing = list(matrix_rules(signature, arch))
        yield from missing
        if missing:
            return
        broken = list(_grid(schedule, arch))
        yield from broken
        if not broken:
            yield from _tile(signature, schedule, arch)

    def copied_sizes(self, schedule: TiledSchedule, signature: GemmSignature) -> CopiedSizes:
        """A k of 0 has no parts, one of 1 has."""
        split = int(schedule.split_k > 1)
        return CopiedSizes(short_k=split, least_k=split)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h, arch = spec.schedule, arch_by_name(spec.arch)
        kinds = shape.multiplied(spec.signature, arch) or ("fp16", "fp16")
        return {
            **tile_numbers(h.tile), "split_k": h.split_k, "stages": h.stages, "threads": shape.threads(h, arch),
            "wave": arch.warp_size, "size": DTYPES[kinds[0]].bytes, "issue": issue(spec),
        }  # fmt: skip

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        s, h, arch = spec.signature, spec.schedule, arch_by_name(spec.arch)
        kinds = shape.multiplied(s, arch)
        assert kinds is not None
        return {
            **super().context(spec), "multiplied": kinds, "threads": shape.threads(h, arch),
            "width_c": shape.width_c(s), "lds_bytes": shape.lds_bytes(h, DTYPES[kinds[0]].bytes),
            "b_rows": s.layout[1] == "r" and s.variant != "preshuffle",
        }  # fmt: skip

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(("v_wmma_",) if "wmma" in arch_by_name(spec.arch).features else ("v_mfma_",))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


FAMILY = Tiled()
