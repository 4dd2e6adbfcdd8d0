"""tiled: our own kernels, wherever an AMD GPU has a matrix instruction for the types: MFMA of CDNA, WMMA of RDNA.

Any stride, size and alignment, and every feature: windows and first keys that are always seen, boolean masks, bias,
ALiBi, soft cap, sinks, lengths, packed rows, pages of any size, dropout, fp8 with its scales.  One header
(`hip/attention/tiled/kernel.h`) over the atoms of `hip/matrix.h`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.families import Family
from tilewright.backends.hip.attention.ck_tile import pools
from tilewright.backends.hip.attention.ck_tile.profiles import POOLS
from tilewright.backends.hip.attention.tiled import proposals, shape
from tilewright.backends.hip.attention.tiled.schedule import TiledAttentionSchedule
from tilewright.backends.hip.matrix import SIDE, instruction, lane_registers
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.family import AttentionFamily
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

__all__ = ["FAMILY", "TiledAttentionSchedule"]

COMPILE_MEMORY = 300 << 20
MAX_THREADS = 1024
FEW = 4  # schedules in `default`
# Registers of a lane for addresses and the loop, and again for each of its rows; of what is done to scores; what the
# compiler moves ahead, as a share of what was counted.  On RDNA two blocks of rows take more of all: of 128x64 with
# heads of 64 a plain kernel fits into 256, one with pages spilled 2 to 6, one with a soft cap and dropout 20.  Of one
# block with something done to scores, 32x32 of heads of 160 (245 counted without SCORED_RDNA) spilled 9 with ALiBi, 19
# with a soft cap and dropout, 54 with ALiBi, dropout and a window, 2 of these on gfx1201; those with 204 fit.
# RDNA 3 has no room for many loads of a tile by few lanes, unless it is of 16 keys: without PIECE_TWICE 128 keys of 32
# elements (8 loads a lane, 248 counted) spilled 10, 64 of 96 (12, 255) 13, 32 of 160 (10, 229) 8, 64 of 192 (12, 224)
# 2; 64 of 64 (8) and 32 of 96 (6) just fit.
BESIDE, SCORED, PAGED, AHEAD, AHEAD_RDNA, AHEAD_BLOCK, SCORED_RDNA = 20, 16, 8, 1.35, 1.3, 0.2, 28
FEW_PIECES, PIECE_TWICE = 6, 8


def is_scored(signature: AttentionSignature) -> bool:
    """Whether something is done to scores beyond their scale."""
    s = signature
    return s.softcap or s.masked or s.sink or s.bias != "none" or s.scales != "none"


def matrix_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Which attentions these kernels have on the arch."""
    s = signature
    if s.family not in TiledAttentionSchedule.serves:
        message = f"{s.family} multiplies no rows with keys"
        yield Violation("amd-attention-family", message, "use another pipeline")
    elif shape.multiplied(s, arch) is None:
        if (s.dtype_q, s.scales) == ("fp16", "block"):
            message = f"weights times scales per block do not fit fp16, and {arch.name} has no instruction for fp32"
            yield Violation("amd-scales", message, "use bf16 queries, other scales, or the loops")
            return
        message = f"{arch.name} has no matrix instruction for {s.dtype_q}"
        yield Violation("amd-matrix", message, "use the loops")


def most_registers(schedule: TiledAttentionSchedule, arch: Arch) -> int:
    return lane_registers(schedule.waves, arch)


def wanted_registers(signature: AttentionSignature, schedule: TiledAttentionSchedule, arch: Arch) -> int:
    s, blocks = signature, schedule.row_blocks
    ahead = AHEAD if "mfma" in arch.features else AHEAD_RDNA + AHEAD_BLOCK * (blocks - 1)
    beside = BESIDE * (1 + blocks) + SCORED * (is_scored(s) or s.dropout)
    if blocks == 1 and "mfma" not in arch.features:
        beside += SCORED_RDNA * (is_scored(s) or s.dropout)
        dtype = shape.multiplied(s, arch)
        if dtype is not None and instruction(dtype, arch).groups == 1 and schedule.tile_n > SIDE:
            line = max(s.head_dim, s.head_dim_v) * DTYPES[dtype].bytes // shape.ACCESS_BYTES
            beside += PIECE_TWICE * max(0, -(-schedule.tile_n * line // shape.threads(schedule, arch)) - FEW_PIECES)
    elif blocks > 1:
        beside += SCORED * (is_scored(s) and s.dropout) + PAGED * (s.pages != "none" and "mfma" not in arch.features)
    return int(shape.registers(s, schedule, arch) * ahead) + beside


def _tile_rules(signature: AttentionSignature, schedule: TiledAttentionSchedule, arch: Arch) -> Iterator[Violation]:
    s, h, dtype = signature, schedule, shape.multiplied(signature, arch)
    assert dtype is not None
    if (lanes := shape.threads(h, arch)) > MAX_THREADS:
        yield Violation("amd-warps", f"{lanes} threads of {h.waves} waves", f"use at most {MAX_THREADS} threads")
    if h.waves % h.column_waves or s.head_dim_v % (SIDE * h.column_waves):
        message = f"column_waves {h.column_waves}: {h.waves} waves and a head of {s.head_dim_v} are not whole shares"
        yield Violation("amd-warps", message, "use a divisor of waves and of head_dim_v / 16")
        return
    least = shape.least_keys(dtype, arch)
    if h.tile_n % least:
        message = f"tile_n {h.tile_n}: an instruction of {dtype} takes {least} keys"
        yield Violation("amd-tile-size", message, f"use a multiple of {least}")
        return
    if (bytes_ := shape.lds_bytes(s, h, DTYPES[dtype].bytes)) > arch.scratch_bytes:
        message = f"{bytes_} bytes of LDS, and there are {arch.scratch_bytes}"
        yield Violation("amd-lds", message, "use a smaller tile_n, or fewer waves where it is lean")
    if (wanted := wanted_registers(s, h, arch)) > (most := most_registers(h, arch)):
        message = f"a lane wants {wanted} registers and has {most}: over that it spills"
        yield Violation("amd-registers", message, "use a smaller tile_n, fewer row_blocks, or lean")
    elif (computed := wanted - shape.results(s, h, arch)) > arch.vector_registers:
        message = f"a lane computes in {computed} registers and has {arch.vector_registers} that are not for sums alone"
        yield Violation("amd-registers", message, "use a smaller tile_n, more waves, fewer row_blocks, or column_waves")


class Tiled(Family, AttentionFamily):
    name = "tiled"
    schedules = (TiledAttentionSchedule,)
    template = ("tilewright.backends.hip.attention", "attention.hpp.jinja")

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[TiledAttentionSchedule]:
        """In the pools of CK Tile's dispatcher where CK Tile has no kernel, in the others always."""
        if next(matrix_rules(signature, arch), None) is not None:
            return
        if pool in POOLS and (
            next(pools.profile_violations(pool, signature, arch), None) is not None
            or pools.has_kernel(pool, signature, arch)
        ):
            return
        wide, chosen = pool in ("full", "profiler"), list[TiledAttentionSchedule]()
        for schedule in proposals.of_pool(pool, signature, arch):
            if not wide and (len(chosen) == FEW or next(self.violations(signature, schedule, arch), None) is not None):
                continue
            if not wide and any(schedule.tile == other.tile and schedule.waves == other.waves for other in chosen):
                continue  # lean only where it must be
            chosen.append(schedule)
            yield schedule

    def violations(
        self, signature: AttentionSignature, schedule: TiledAttentionSchedule, arch: Arch
    ) -> Iterator[Violation]:
        missing = list(matrix_rules(signature, arch))
        yield from missing
        if not missing:
            yield from _tile_rules(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        s, h, arch = spec.signature, spec.schedule, arch_by_name(spec.arch)
        dtype = shape.multiplied(s, arch) or "fp16"
        return {
            "tile_m": h.tile_m, "tile_n": h.tile_n, "threads": shape.threads(h, arch), "wave": arch.warp_size,
            "size": DTYPES[dtype].bytes, "narrow": int(dtype != s.dtype_kv), "scored": int(is_scored(s) or s.dropout),
            "lean": int(h.lean), "shares": h.column_waves,
        }  # fmt: skip

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        s, h, arch = spec.signature, spec.schedule, arch_by_name(spec.arch)
        dtype = shape.multiplied(s, arch)
        assert dtype is not None
        fields: dict[str, Any] = {name: getattr(h, name) for name in ("tile_m", "tile_n", "row_blocks", "column_waves")}
        fields |= {"lean": str(h.lean).lower(), "threads": shape.threads(h, arch),
                   "lds_bytes": shape.lds_bytes(s, h, DTYPES[dtype].bytes)}  # fmt: skip
        return {
            "family": self.name, "kernel": "AttentionTiledKernel", "fields": fields, "route": "", "pipeline": "",
            "multiplied": dtype, "shared": False, "limits": self.numbers(spec),
        }  # fmt: skip

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(("v_wmma_",) if "wmma" in arch_by_name(spec.arch).features else ("v_mfma_",))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


FAMILY = Tiled()
