"""ws, decode and decode_stream_k, of sm_90a: TMA feeds wgmma, warp-specialized and persistent.

`ws` keeps tiles of query rows of one head; `decode` packs the query heads of one head of keys into a tile, for few
rows; `decode_stream_k` does so too, and every block takes an equal share of all keys there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.attention.shared import (
    INPUTS,
    WGMMA_HEADS,
    CudaAttentionFamily,
    available_bytes,
    engine_rules,
    feature_registers,
    held,
    register_rule,
    shared_rule,
    taken_by_wgmma,
)
from tilewright.backends.cuda.pipelines import Fields, flag
from tilewright.backends.families import selection_number
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation
from tilewright.renames import renamed_fields

MEMORY = Arithmetic("tilewright.backends.cuda.attention.ws", "tilewright/cuda/attention/ws/memory.h")
ROWS = MEMORY("ws_rows")  # of a warpgroup
COLUMNS = (16, 32, *range(48, 257, 16))  # keys of a tile: the widths of wgmma, in whole steps of the values
MAX_STAGES = 16
# What a consumer thread needs beside scores, weights and results: places, rows, what the compiler keeps.
BESIDE_REGISTERS = 26


@renamed_fields(
    {"together": "ctas_per_sm", "dealing": "tile_scheduler", "row_stages": "q_stages"},
    {"pipeline": {"shares": "decode_stream_k"}, "tile_scheduler": {"striped": "static"}},
)
@dataclass(frozen=True, slots=True)
class WsSchedule:
    """Producer warps and consumer warpgroups; each of these keeps 64 rows, their scores and results in registers."""

    pipeline: str
    tile_n: int  # keys of a tile
    warpgroups: int  # consumers
    stages: int  # tiles of keys and values in flight
    ctas_per_sm: int = 1  # occupancy
    tile_scheduler: str = "static"  # of work items; dynamic: a block that is done takes the next
    q_stages: int = 1  # tiles of queries in flight; with two, an item begins beside the end of the one before

    pipelines: ClassVar[tuple[str, ...]] = ("ws", "decode", "decode_stream_k")
    serves: ClassVar[tuple[str, ...]] = ("forward", "split")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines, "tile_scheduler": ("static", "dynamic")}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return ROWS * self.warpgroups

    @property
    def packs(self) -> bool:
        """Query heads of one head of keys into a tile of rows."""
        return self.pipeline != "ws"

    def label(self) -> str:
        label = f"{self.pipeline}_{self.tile_m}x{self.tile_n}_stages{self.stages}"
        label += f"_ctas{self.ctas_per_sm}" if self.ctas_per_sm > 1 else ""
        label += f"_q{self.q_stages}" if self.q_stages > 1 else ""
        return label + ("_dynamic" if self.tile_scheduler == "dynamic" else "")


def tile_bytes(signature: AttentionSignature, schedule: WsSchedule) -> tuple[int, int]:
    """Of a stage of rows of queries, and of one of keys and values, with their barriers."""
    s, h = signature, schedule
    rows = MEMORY("ws_row_stage_bytes", h.tile_m, s.head_dim)
    return rows, MEMORY("ws_stage_bytes", h.tile_n, s.head_dim, s.head_dim_v)


def shared_bytes(signature: AttentionSignature, schedule: WsSchedule) -> int:
    rows, stage = tile_bytes(signature, schedule)
    return schedule.q_stages * rows + schedule.stages * stage + MEMORY("ws_beside")


def most_stages(signature: AttentionSignature, schedule: WsSchedule, arch: Arch) -> int:
    rows, stage = tile_bytes(signature, schedule)
    left = available_bytes(schedule.ctas_per_sm, arch) - MEMORY("ws_beside") - schedule.q_stages * rows
    return max(1, left // stage)


def allowed_registers(signature: AttentionSignature, schedule: WsSchedule) -> int | None:
    """What a consumer thread may hold; None where no kernel has so many warpgroups or blocks."""
    h, paged = schedule, signature.pages != "none"
    return MEMORY("ws_consumer_registers", h.warpgroups, h.ctas_per_sm, paged, h.pipeline == "decode_stream_k") or None


def registers(signature: AttentionSignature, schedule: WsSchedule) -> int:
    """What a consumer thread holds: results, scores, and these again as weights of two bytes."""
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


def _ws(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[WsSchedule]:
    """The tiles of a head size; windows and sequences that differ are scheduled dynamically."""
    tiles = _TILES.get(max(signature.head_dim, signature.head_dim_v), ())
    uneven = signature.mask != "none" or signature.varlen
    if feature_registers(signature):  # long code for each column, and registers of its own
        narrow = 64 if signature.head_dim_v < 256 else 48
        tiles = ((2, narrow, 4),) if not wide else tuple((2, min(keys, narrow), most) for _, keys, most in tiles)
    if signature.pages != "none":  # beside three, whoever finds pages has too few registers
        tiles = tuple(tile for tile in tiles if tile[0] < 3)
    for warpgroups, keys, stages in tiles if wide else tiles[:_FEW]:
        small = max(signature.head_dim, signature.head_dim_v) <= _STREAMED
        for rows in (1, 2) if wide else (2,) if small else (1,):
            schedule = WsSchedule("ws", keys, warpgroups, stages, q_stages=rows)
            schedule = replace(schedule, stages=min(stages, most_stages(signature, schedule, arch)))
            for tile_scheduler in ("static", "dynamic") if wide else ("dynamic",) if uneven else ("static",):
                yield replace(schedule, tile_scheduler=tile_scheduler)


def _decode(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[WsSchedule]:
    """One warpgroup, and as many stages as fit: what counts is how much is under way."""
    tiles = _DECODE.get(max(signature.head_dim, signature.head_dim_v), ())
    if feature_registers(signature):
        tiles = tuple(dict.fromkeys((min(keys, 64), ctas_per_sm) for keys, ctas_per_sm in tiles))
    for keys, ctas_per_sm in tiles if wide else tiles[:_FEW]:
        schedule = WsSchedule("decode", keys, 1, 2, ctas_per_sm)
        yield replace(schedule, stages=min(8, most_stages(signature, schedule, arch)))
    if wide or signature.mask != "none":
        first = next(_ws(signature, arch, False))
        yield replace(first, pipeline="decode", q_stages=1)


def _stream_k(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[WsSchedule]:
    """Those of `decode` that keep one warpgroup: the usual, or all."""
    schedules = (schedule for schedule in _decode(signature, arch, wide) if schedule.warpgroups == 1)
    for schedule in schedules if wide else (next(schedules),):
        yield replace(schedule, pipeline="decode_stream_k")


class Ws(CudaAttentionFamily):
    name = "ws"
    schedules = (WsSchedule,)
    device = "TW_DEVICE_ATTENTION_WS"

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[WsSchedule]:
        wide = pool != "default"
        if not taken_by_wgmma(signature, arch) or signature.family not in WsSchedule.serves:
            return
        if signature.family == "forward":
            yield from _ws(signature, arch, wide)
            yield from _stream_k(signature, arch, wide)
        yield from _decode(signature, arch, wide)

    def violations(self, signature: AttentionSignature, schedule: WsSchedule, arch: Arch) -> Iterator[Violation]:
        s = signature
        yield from engine_rules(schedule.pipeline, s, arch, INPUTS, "the mma pipeline")
        if s.head_dim not in WGMMA_HEADS or s.head_dim_v not in WGMMA_HEADS:
            message = f"head_dim {s.head_dim} and head_dim_v {s.head_dim_v}"
            yield Violation("nv-heads", message, f"use {', '.join(map(str, WGMMA_HEADS))}, or the loops pipeline")
        yield from _tile_rules(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: WsSchedule = spec.schedule
        named = ("tile_n", "warpgroups", "stages", "ctas_per_sm", "q_stages")
        more = {
            "packs": h.packs,
            "stream_k": h.pipeline == "decode_stream_k",
            "size_kv": DTYPES[spec.signature.dtype_kv].bytes,
        }
        return {name: getattr(h, name) for name in named} | held(spec.signature) | more

    def wgmma_widths(self, spec: KernelSpec) -> tuple[int, ...]:
        return tuple(sorted({spec.schedule.tile_n, spec.signature.head_dim_v}))

    def config(self, spec: KernelSpec) -> Fields:
        h: WsSchedule = spec.schedule
        return {
            "tile_n": h.tile_n,
            "warpgroups": h.warpgroups,
            "stages": h.stages,
            "ctas_per_sm": h.ctas_per_sm,
            "pack_heads": flag(h.packs),
            "dynamic": flag(h.tile_scheduler == "dynamic"),
            "stream_k": flag(h.pipeline == "decode_stream_k"),
            "q_stages": h.q_stages,
        }

    def host_half(self, schedule: WsSchedule) -> tuple[str, str]:
        if schedule.pipeline == "decode_stream_k":
            return "stream_k/host.h", "HostAttentionStreamK"
        return "ws/host.h", "HostAttentionWs"

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), shared_bytes(spec.signature, spec.schedule))

    def meeting_trips(self, spec: KernelSpec, problem: AttentionProblem, pieces: float) -> float | None:
        if spec.schedule.pipeline != "decode_stream_k":
            return None
        return selection_number(spec, "tw_select_meeting_trips", problem, pieces)


def _tile_rules(signature: AttentionSignature, schedule: WsSchedule, arch: Arch) -> Iterator[Violation]:
    h = schedule
    if h.tile_n not in COLUMNS:
        yield Violation(
            "nv-tile-n", f"tile_n {h.tile_n} is not a multiple of 16 that one wgmma can have as n", "use 64 or 128"
        )
    allowed = allowed_registers(signature, h)
    if allowed is None:
        message = f"{h.warpgroups} consumer warpgroups, {h.ctas_per_sm} CTAs per SM"
        yield Violation("nv-warpgroups", message, "use 1 to 3 warpgroups and one CTA per SM, or 1 and two CTAs")
    else:
        yield from register_rule(registers(signature, h), allowed, "use a smaller tile_n or fewer warpgroups")
    if not 1 <= h.q_stages <= (2 if h.pipeline == "ws" else 1):
        message = f"{h.q_stages} stages of queries in {h.pipeline}"
        yield Violation("nv-q-stages", message, "use 1, or 2 with ws")
    if h.pipeline == "decode_stream_k" and (
        signature.family != "forward" or h.warpgroups > 1 or h.tile_scheduler != "static"
    ):
        message = f"decode_stream_k of {signature.family}, {h.warpgroups} consumer warpgroups, {h.tile_scheduler}"
        yield Violation(
            "nv-stream-k",
            message,
            "use the forward family, one warpgroup and the static scheduler, or the decode pipeline",
        )
    if h.stages > MAX_STAGES:
        yield Violation("nv-stages", f"{h.stages} stages", f"use at most {MAX_STAGES}")
    yield from shared_rule(shared_bytes(signature, h), available_bytes(h.ctas_per_sm, arch))


FAMILY = Ws()
