"""ws, of sm_90a: TMA feeds wgmma, warp-specialized; a block owns 128 keys, and TMA adds up dq."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cuda.attention_backward.shared import (
    INPUTS,
    MOST_WGMMA_HEAD,
    WGMMA_HEADS,
    CudaAttentionBackwardFamily,
    scored,
    taken_by_wgmma,
)
from tilewright.backends.cuda.pipelines import Fields, flag
from tilewright.dataclass import dataclass
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.attention_terms import MASKS
from tilewright.ops.base import KernelSpec, Violation
from tilewright.renames import renamed_fields

KEYS, LINE = 128, 128  # keys of a tile; bytes of a swizzled row
WIDE_KEYS = 64  # of a tile that warpgroups share
MULTIPLIERS = 2  # warpgroups
REGISTERS = 240  # of a consumer thread
# What it needs beside accumulators, scores and weights: addresses, numbers of rows, what the compiler keeps.
BESIDE_REGISTERS, WINDOW_REGISTERS, CAP_REGISTERS, TABLE_REGISTERS = 20, 4, 16, 6
SUMS = ("dq", "all")  # of dk and dv too where several blocks share a tile of keys
OVERLAPS = ("scores", "none")


@renamed_fields(
    {"row_stages": "q_stages", "out_stages": "do_stages", "score_stages": "ds_stages", "order": "overlap"},
    {"overlap": {"ahead": "scores", "tight": "none"}},
)
@dataclass(frozen=True, slots=True)
class WsSchedule:
    """Warp-specialized: producer warps and two consumer warpgroups; each keeps 64 keys, with dk and dv in registers."""

    pipeline: str
    tile_m: int  # rows of a tile
    q_stages: int = 2  # tiles of queries in flight
    do_stages: int = 2  # tiles of gradients of the result in flight
    ds_stages: int = 2  # tiles of gradients of scores in shared memory
    overlap: str = "scores"  # of the next tile, with the last product of this one; none takes fewer registers

    pipelines: ClassVar[tuple[str, ...]] = ("ws",)
    serves: ClassVar[tuple[str, ...]] = ("grad",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines, "overlap": OVERLAPS}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        stages = f"{self.q_stages}x{self.do_stages}x{self.ds_stages}"
        overlap = "_overlap" if self.overlap == "scores" else ""
        return f"{self.pipeline}_{self.tile_m}x{KEYS}_stages{stages}{overlap}"


def is_wide(signature: AttentionBackwardSignature) -> bool:
    """Whether both warpgroups have the same keys, and columns of their own (ws/wide/shape.h)."""
    return not {signature.head_dim, signature.head_dim_v} <= set(WGMMA_HEADS)


def keys_of(signature: AttentionBackwardSignature) -> int:
    return WIDE_KEYS if is_wide(signature) else KEYS


def _blocks(signature: AttentionBackwardSignature) -> tuple[int, int]:
    """64 columns each."""
    return -(-signature.head_dim // 64), -(-signature.head_dim_v // 64)


def _barriers(schedule: WsSchedule) -> int:
    return 8 * (2 + 2 * schedule.q_stages + 2 * schedule.do_stages)


def shared_bytes(signature: AttentionBackwardSignature, schedule: WsSchedule) -> int:
    """cuda/attention_backward/ws/shape.h, and that of wide."""
    h = schedule
    deep, wide = _blocks(signature)
    if is_wide(signature):
        row_stage, out_stage = deep * h.tile_m * LINE + 8 * h.tile_m, wide * h.tile_m * LINE
        taken = (deep + wide) * WIDE_KEYS * LINE + h.q_stages * row_stage + h.do_stages * out_stage
        return 1024 + taken + (2 * h.ds_stages + 2 * MULTIPLIERS) * h.tile_m * LINE + _barriers(h)
    dq_rows = h.tile_m if deep == MULTIPLIERS else h.tile_m // MULTIPLIERS
    row_stage, out_stage = deep * h.tile_m * LINE + 8 * h.tile_m, wide * h.tile_m * LINE
    taken = (deep + wide) * KEYS * LINE + h.q_stages * row_stage + h.do_stages * out_stage
    taken += h.ds_stages * MULTIPLIERS * h.tile_m * LINE + MULTIPLIERS * 2 * dq_rows * LINE
    return 1024 + taken + _barriers(h)


def registers(signature: AttentionBackwardSignature, schedule: WsSchedule) -> int:
    """What a consumer thread holds: dk and dv, scores and their gradients, weights of two bytes."""
    s, rows, overlaps = signature, schedule.tile_m, schedule.overlap == "scores"
    if is_wide(s):
        sums = sum(-(-blocks // MULTIPLIERS) * 32 for blocks in _blocks(s))
        return (
            sums + rows // 2 * 2 + rows // 8 + 2 * BESIDE_REGISTERS + (rows // 2 if schedule.overlap == "scores" else 0)
        )
    scores = rows // 2 * 2 + (rows // 4 if overlaps else rows // 8)
    beside = BESIDE_REGISTERS + WINDOW_REGISTERS * MASKS.index(s.mask) + CAP_REGISTERS * s.softcap
    beside += TABLE_REGISTERS * ((s.bias != "none") + s.masked + s.dropout) * (2 if s.softcap else 1)
    return (s.head_dim + s.head_dim_v) // 2 + scores + beside


# Rows of a tile and what overlaps, the usual one first.
_TILES: dict[int, tuple[tuple[int, str], ...]] = {
    32: ((96, "scores"), (64, "scores"), (128, "none")),
    64: ((96, "scores"), (112, "scores"), (128, "none"), (64, "scores")),
    96: ((80, "scores"), (64, "scores"), (64, "none")),
    128: ((64, "scores"), (80, "none"), (64, "none")),
}
# Where tables or draws change scores ptxas keeps no products in flight over what reads them.
_SCORED_TILES: dict[int, tuple[tuple[int, str], ...]] = {
    32: ((96, "none"), (64, "none")),
    64: ((96, "none"), (64, "none")),
    96: ((64, "none"), (48, "none")),
    128: ((64, "none"), (48, "none")),
}
_WIDE_TILES: tuple[tuple[int, str], ...] = ((64, "scores"), (64, "none"))
_FEW = 2  # in `default`
_STAGES = ((2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 1))
_WIDE_STAGES: tuple[tuple[int, int, int], ...] = ((2, 2, 2), (2, 1, 2))


def _violations(signature: AttentionBackwardSignature, schedule: WsSchedule, arch: Arch) -> Iterator[Violation]:
    s, h, other = signature, schedule, "or the mma pipeline"
    if not {"wgmma", "tma"} <= arch.features:
        message = f"{h.pipeline} needs wgmma and TMA, which {arch.name} has not"
        yield Violation("nv-arch", message, f"use target sm_90a, {other}")
    if s.dtype not in INPUTS:
        yield Violation("nv-inputs", f"{h.pipeline} of {s.dtype}", f"use {' or '.join(INPUTS)}, or the loops pipeline")
    if s.dalibi or (s.dbias and s.softcap):
        message = f"{h.pipeline} with the gradient of {'slopes' if s.dalibi else 'a bias added to capped scores'}"
        yield Violation("nv-features", message, "use the mma pipeline")
    if s.accumulate not in SUMS:
        message = f"{h.pipeline} leaves accumulators of dq, or of all, not of {s.accumulate}"
        yield Violation("nv-accumulate", message, f"use accumulate {' or '.join(SUMS)}, {other}")
    if max(s.head_dim, s.head_dim_v) > MOST_WGMMA_HEAD:
        message = f"{h.pipeline} with heads of {s.head_dim} and {s.head_dim_v}"
        yield Violation("nv-heads", message, f"use at most {MOST_WGMMA_HEAD}, {other}")
        return
    yield from _tile_rules(s, h, arch)


def _changes_scores(signature: AttentionBackwardSignature) -> bool:
    """Whether tables or draws change its scores."""
    return signature.bias != "none" or signature.masked or signature.dropout


def _tile_rules(s: AttentionBackwardSignature, h: WsSchedule, arch: Arch) -> Iterator[Violation]:
    if _changes_scores(s) and h.overlap != "none":
        message = f"overlap {h.overlap} with a bias, a mask of bytes or dropout: products would wait for each other"
        yield Violation("nv-overlap", message, "use overlap none")
    if h.tile_m % 16 or h.tile_m > 128:
        yield Violation("nv-tile-m", f"tile_m {h.tile_m} is not whole products", "use a multiple of 16, at most 128")
    if h.q_stages < 2 or h.ds_stages > 2:
        message = f"{h.q_stages} stages of q and {h.ds_stages} of ds"
        yield Violation("nv-stages", message, "use q_stages 2 or more, and ds_stages 1 or 2")
    if is_wide(s) and (h.tile_m % 32 or h.ds_stages != 2):
        message = f"tile_m {h.tile_m} and {h.ds_stages} stages of ds with heads over {WGMMA_HEADS[-1]}"
        yield Violation("nv-wide", message, "use a multiple of 32, and ds_stages 2")
    if registers(s, h) > REGISTERS:
        message = f"accumulators, scores and weights take {registers(s, h)} of {REGISTERS} registers"
        yield Violation("nv-registers", message, "use a smaller tile_m, or overlap none")
    taken, available = shared_bytes(s, h), arch.scratch_bytes
    if taken > available:
        message = f"keys, rows and stages take {taken} of {available} bytes of shared memory"
        yield Violation("nv-shared-memory", message, "use fewer stages or a smaller tile_m")


class Ws(CudaAttentionBackwardFamily):
    name = "ws"
    schedules = (WsSchedule,)

    def device(self, spec: KernelSpec) -> str:
        return f"TW_DEVICE_ATTENTION_BACKWARD_{'WIDE' if is_wide(spec.signature) else 'WS'}"

    def host(self, spec: KernelSpec) -> str:
        return f"HostAttentionBackward{'Wide' if is_wide(spec.signature) else 'Ws'}"

    def headers(self, spec: KernelSpec) -> str:
        return "ws/wide" if is_wide(spec.signature) else "ws"

    def beside(self, spec: KernelSpec) -> tuple[str, ...]:
        return ("_clear",)

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[WsSchedule]:
        s = signature
        if s.family != "grad" or s.accumulate not in SUMS or not taken_by_wgmma(s, arch):
            return
        tiles, depths = _WIDE_TILES, _WIDE_STAGES
        if not is_wide(s):
            tiles, depths = (_SCORED_TILES if _changes_scores(s) else _TILES)[max(s.head_dim, s.head_dim_v)], _STAGES
        schedules = (WsSchedule("ws", rows, *stages, overlap) for stages in depths for rows, overlap in tiles)
        legal = [schedule for schedule in schedules if not any(_violations(s, schedule, arch))]
        yield from legal[: _FEW if pool == "default" else len(legal)]

    def violations(
        self, signature: AttentionBackwardSignature, schedule: WsSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        s, h = spec.signature, spec.schedule
        named = ("tile_m", "q_stages", "do_stages", "ds_stages")
        fields = {name: getattr(h, name) for name in named} | {"tile_n": keys_of(s), "ahead": h.overlap == "scores"}
        return fields | {"head_dim": s.head_dim, "head_dim_v": s.head_dim_v, "scored": scored(s)}

    def config(self, spec: KernelSpec) -> Fields:
        h: WsSchedule = spec.schedule
        named = ("tile_m", "q_stages", "do_stages", "ds_stages")
        return {**{name: getattr(h, name) for name in named}, "ahead": flag(h.overlap == "scores")}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG", "UTMAREDG"), shared_bytes(spec.signature, spec.schedule))


FAMILY = Ws()
