"""What a schedule of our own attention kernels comes to: element types, LDS, registers.

The C++ asserts the same numbers (`hip/attention/tiled`).
"""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.backends.hip.attention.tiled.schedule import TiledAttentionSchedule
from tilewright.backends.hip.matrix import SIDE, instruction, is_fp8, multiplies
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.spec import AttentionSignature

ACCESS_BYTES = 16
WORD = 4
ADDRESS = 2  # registers of one
FEW_PIECES, PLACE = 8, 3  # accesses of a lane beyond which places of each are held, too; and registers of these


def multiplied(signature: AttentionSignature, arch: Arch) -> str | None:
    """As which type elements are multiplied; None where the arch has no instruction for it.

    fp8 becomes bf16, which has all its numbers, or fp16 beside queries of fp16, which has those of e4m3.  With scales
    by block, weights times scales do not fit fp16: fp16 becomes fp32.
    """
    dtype = "bf16" if is_fp8(signature.dtype_q) else signature.dtype_q
    if (dtype, signature.scales) == ("fp16", "block"):
        dtype = "fp32"
    return dtype if multiplies(dtype, arch) else None


def threads(schedule: TiledAttentionSchedule, arch: Arch) -> int:
    return arch.warp_size * schedule.waves


def least_keys(dtype: str, arch: Arch) -> int:
    """Keys that an instruction of the second product takes, or 16."""
    unit = instruction(dtype, arch)
    return max(SIDE, unit.groups * unit.bytes // DTYPES[dtype].bytes)


def _line_bytes(deep: int, size: int) -> int:
    return deep * size + ACCESS_BYTES


def lds_bytes(signature: AttentionSignature, schedule: TiledAttentionSchedule, size: int) -> int:
    """Rows of queries, beside keys and transposed values where they stay, else in the same place before these."""
    s, h = signature, schedule
    queries = h.tile_m * _line_bytes(s.head_dim, size)
    keys = h.tile_n * _line_bytes(s.head_dim, size) + s.head_dim_v * _line_bytes(h.tile_n, size)
    return queries + keys if h.lean else max(queries, keys)


def results(signature: AttentionSignature, schedule: TiledAttentionSchedule, arch: Arch) -> int:
    """Registers of a lane that hold sums of results: accumulation registers do."""
    return SIDE * schedule.row_blocks * signature.head_dim_v // (arch.warp_size * schedule.column_waves)


def registers(signature: AttentionSignature, schedule: TiledAttentionSchedule, arch: Arch) -> int:
    """Of a lane, counted: results, scores, queries, what it holds of the next tile (lean: of this one)."""
    s, h, dtype = signature, schedule, multiplied(signature, arch)
    assert dtype is not None
    lanes, size, narrow = arch.warp_size, DTYPES[dtype].bytes, DTYPES[s.dtype_kv].bytes
    rows = SIDE * h.row_blocks
    copies = 2 if instruction(dtype, arch).groups == 1 else 1  # RDNA 3 has a line twice in a wave
    queries = 0 if h.lean else rows * s.head_dim * size * copies // (lanes * WORD)
    pieces = [-(-h.tile_n * head * narrow // ACCESS_BYTES // threads(h, arch)) for head in (s.head_dim, s.head_dim_v)]
    scores, words = rows * h.tile_n // lanes, ACCESS_BYTES // WORD
    many = (
        max(0, max(pieces) - FEW_PIECES) * PLACE
    )  # one of 16 pieces, counted without, spilled 20 registers on gfx1201
    fetching = max(max(pieces) * (words + ADDRESS) + many, scores) if h.lean else sum(pieces) * words + scores
    return results(s, h, arch) + queries + fetching
