"""The schedules of attention on NVIDIA GPUs.

WsSchedule   sm_90a: the copy engine feeds wgmma, warp-specialised and persistent.  `ws` keeps tiles of query rows of
             one head; `decode` packs the query heads of one head of keys into a tile, for few rows; `shares` does so
             too, and every block takes an equal share of all keys there are
CombineSchedule   parts of such put together
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cuda.attention import (
    fp8 as nvidia_fp8,
)
from tilewright.backends.cuda.attention import (
    latent as nvidia_latent,
)
from tilewright.backends.cuda.attention import (
    mma as nvidia_mma,
)
from tilewright.backends.cuda.attention import (
    shares as nvidia_shares,
)
from tilewright.backends.cuda.attention.shared import feature_registers
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature

ROWS = 64  # of a warpgroup
LINE = 128  # bytes of one swizzled row
COLUMNS = (16, 32, *range(48, 257, 16))  # keys of a tile: the widths of wgmma, in whole steps of the values
HEADS_QK = (32, 64, 96, 128, 160, 192, 256)
HEADS_V = (32, 64, 96, 128, 160, 192, 256)  # widths wgmma is spelled out for with weights in registers
BESIDE = 1024 + 4 * 48 + 8 * 8  # alignment, items that were told and their barriers: cuda/attention/ws/shape.h
STAGE_BARRIERS, ROW_BARRIERS = 8 * 4, 8 * 2
UNIT_SHARED, BLOCK_SHARED = 233472, 1024  # bytes of shared memory of a multiprocessor, and what a block takes itself
# Registers of a multiplying thread, by warpgroups and blocks that share a multiprocessor: cuda/attention/ws/shape.h.
REGISTERS = {(1, 1): 240, (1, 2): 216, (2, 1): 232, (3, 1): 160}
PAGED_REGISTERS = {(2, 1): 224}  # where whoever feeds needs more, to find pages
SHARES_REGISTERS = {(1, 2): 192}  # or to find its share
# What it needs beside scores, weights and results: places, rows, what the compiler keeps.
BESIDE_REGISTERS = 26


@dataclass(frozen=True, slots=True)
class WsSchedule:
    """Warps that feed and warpgroups that multiply; each keeps 64 rows, their scores and results in registers."""

    pipeline: str
    tile_n: int  # keys of a tile
    warpgroups: int  # that multiply
    stages: int  # tiles of keys and values under way
    together: int = 1  # blocks of a multiprocessor
    dealing: str = "striped"  # of items to blocks; dynamic: whoever is done takes the next
    row_stages: int = 1  # tiles of rows under way; with two, an item begins beside the end of the one before

    pipelines: ClassVar[tuple[str, ...]] = ("ws", "decode", "shares")
    serves: ClassVar[tuple[str, ...]] = ("forward", "split")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines, "dealing": ("striped", "dynamic")}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return ROWS * self.warpgroups

    @property
    def packs(self) -> bool:
        """Query heads of one head of keys into a tile of rows."""
        return self.pipeline != "ws"

    def meeting_trips(self, problem: AttentionProblem, pieces: float) -> float | None:
        return nvidia_shares.meeting_trips(problem, pieces) if self.pipeline == "shares" else None

    def label(self) -> str:
        said = f"{self.pipeline}_{self.tile_m}x{self.tile_n}_stages{self.stages}"
        said += f"_together{self.together}" if self.together > 1 else ""
        said += f"_rows{self.row_stages}" if self.row_stages > 1 else ""
        return said + ("_dynamic" if self.dealing == "dynamic" else "")


@dataclass(frozen=True, slots=True)
class CombineSchedule:
    """Parts put together: a team of warps for a row of one head, who share the parts."""

    pipeline: str = field(default="combine", init=False)
    warps: int

    pipelines: ClassVar[tuple[str, ...]] = ("combine",)
    serves: ClassVar[tuple[str, ...]] = ("combine",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"combine_warps{self.warps}"


def tile_bytes(signature: AttentionSignature, schedule: WsSchedule) -> tuple[int, int]:
    """Of the rows of queries, and of a stage of keys and values."""
    deep, wide = (-(-one // ROWS) for one in (signature.head_dim, signature.head_dim_v))
    return deep * schedule.tile_m * LINE, (deep + wide) * schedule.tile_n * LINE


def shared_bytes(signature: AttentionSignature, schedule: WsSchedule) -> int:
    """cuda/attention/ws/shape.h."""
    rows, stage = tile_bytes(signature, schedule)
    return schedule.row_stages * (rows + ROW_BARRIERS) + schedule.stages * (stage + STAGE_BARRIERS) + BESIDE


def available_bytes(schedule: WsSchedule, arch: Arch) -> int:
    """Shared memory that a block may ask for; each that shares a multiprocessor costs some more."""
    return arch.scratch_bytes if schedule.together == 1 else UNIT_SHARED // schedule.together - BLOCK_SHARED


def most_stages(signature: AttentionSignature, schedule: WsSchedule, arch: Arch) -> int:
    rows, stage = tile_bytes(signature, schedule)
    left = available_bytes(schedule, arch) - BESIDE - schedule.row_stages * (rows + ROW_BARRIERS)
    return max(1, left // (stage + STAGE_BARRIERS))


def allowed_registers(signature: AttentionSignature, schedule: WsSchedule) -> int | None:
    """What a multiplying thread may hold; None where no kernel has so many warpgroups or blocks."""
    which = schedule.warpgroups, schedule.together
    fewer = PAGED_REGISTERS if signature.pages != "none" else {}
    fewer = SHARES_REGISTERS if schedule.pipeline == "shares" else fewer
    return fewer.get(which, REGISTERS.get(which))


def registers(signature: AttentionSignature, schedule: WsSchedule) -> int:
    """What a multiplying thread holds: results, scores, and these again as weights of two bytes."""
    s, held = signature, BESIDE_REGISTERS + feature_registers(signature)
    return s.head_dim_v // 2 + schedule.tile_n // 2 + schedule.tile_n // 4 + held


# Warpgroups and keys of a tile, the usual one first; most stages.
_TILES: dict[int, tuple[tuple[int, int, int], ...]] = {
    32: ((3, 128, 4), (2, 128, 4), (2, 176, 3), (3, 96, 4)),
    64: ((3, 128, 4), (2, 128, 4), (2, 176, 3), (3, 96, 4), (2, 192, 3)),
    96: ((2, 128, 3), (2, 144, 2), (3, 64, 4), (2, 96, 3)),
    128: ((2, 128, 3), (2, 176, 2), (2, 160, 2), (2, 112, 3), (2, 64, 4)),
    160: ((2, 96, 2), (2, 112, 2), (2, 64, 3)),
    192: ((2, 112, 2), (2, 64, 3), (2, 96, 2), (2, 128, 2)),
    256: ((2, 80, 2), (2, 64, 2), (2, 48, 3)),
}
_FEW = 2  # tiles of a head in `default`
_STREAMED = 64  # elements of a head up to which the rows of two items cost no stage
_DECODE: dict[int, tuple[tuple[int, int], ...]] = {  # keys of a tile, blocks of a multiprocessor
    32: ((128, 2), (64, 2), (128, 1)),
    64: ((128, 2), (64, 2), (128, 1)),
    96: ((64, 2), (128, 1)),
    128: ((64, 2), (128, 1), (64, 1)),
    160: ((64, 1), (32, 2)),
    192: ((64, 1), (32, 2)),
    256: ((64, 1), (32, 1)),
}


def ws(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[WsSchedule]:
    """The tiles of a head size; windows and sequences that differ are dealt as blocks come free."""
    tiles = _TILES.get(max(signature.head_dim, signature.head_dim_v), ())
    uneven = signature.mask != "none" or signature.varlen
    if feature_registers(signature):  # long code for each column, and registers of its own
        narrow = 64 if signature.head_dim_v < 256 else 48
        tiles = ((2, narrow, 4),) if not wide else tuple((2, min(keys, narrow), most) for _, keys, most in tiles)
    if signature.pages != "none":  # beside three, whoever finds pages has too few registers
        tiles = tuple(one for one in tiles if one[0] < 3)
    for warpgroups, keys, stages in tiles if wide else tiles[:_FEW]:
        small = max(signature.head_dim, signature.head_dim_v) <= _STREAMED
        for rows in (1, 2) if wide else (2,) if small else (1,):
            made = WsSchedule("ws", keys, warpgroups, stages, row_stages=rows)
            made = replace(made, stages=min(stages, most_stages(signature, made, arch)))
            for dealing in ("striped", "dynamic") if wide else ("dynamic",) if uneven else ("striped",):
                yield replace(made, dealing=dealing)


def decode(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[WsSchedule]:
    """One warpgroup, and as many stages as fit: what counts is how much is under way."""
    tiles = _DECODE.get(max(signature.head_dim, signature.head_dim_v), ())
    if feature_registers(signature):
        tiles = tuple(dict.fromkeys((min(keys, 64), together) for keys, together in tiles))
    for keys, together in tiles if wide else tiles[:_FEW]:
        made = WsSchedule("decode", keys, 1, 2, together)
        yield replace(made, stages=min(8, most_stages(signature, made, arch)))
    if wide or signature.mask != "none":
        first = next(ws(signature, arch, False))
        yield replace(first, pipeline="decode", row_stages=1)


def shares(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[WsSchedule]:
    """Those of `decode` that keep one warpgroup: the usual, or all."""
    found = (one for one in decode(signature, arch, wide) if one.warpgroups == 1)
    for one in found if wide else (next(found),):
        yield replace(one, pipeline="shares")


def own(signature: AttentionSignature, arch: Arch) -> bool:
    """Whether the pipelines of sm_90a have kernels of a signature."""
    s = signature
    two = s.dtype_q == s.dtype_kv and s.dtype_q in ("bf16", "fp16")
    return (
        {"wgmma", "tma"} <= arch.features
        and two
        and max(s.head_dim, s.head_dim_v) in _TILES
        and s.pages != "vectorised"
    )


def schedules(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[AttentionSchedule]:
    wide, ours = pool != "default", own(signature, arch)
    if ours and signature.family in WsSchedule.serves:
        if signature.family == "forward":
            yield from ws(signature, arch, wide)
            yield from shares(signature, arch, wide)
        yield from decode(signature, arch, wide)
    yield from nvidia_fp8.schedules(signature, arch, wide)
    yield from nvidia_latent.schedules(signature, arch, wide)
    yield from nvidia_mma.schedules(signature, arch, wide, ours)
    if signature.family == "combine":
        yield from map(CombineSchedule, (1, 4) if pool == "default" else (1, 2, 4, 8))
    yield LoopsSchedule()
