"""The mma pipeline of attention on NVIDIA GPUs: its schedules, what is legal, and what is proposed.

Warps fetch by cp.async and multiply by mma.sync, so that it runs on sm_80 and later, and takes what TMA of
sm_90a does not: any stride, pages of any layout, fp8 (widened to two bytes before the tensor cores, exactly),
heads of up to 576.  `mma` keeps tiles of query rows of one head; `mma_decode` packs the query heads of one of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.attention.shared import (
    FEATURE_REGISTERS,
    CudaAttentionFamily,
    available_bytes,
    feature_registers,
    held,
    taken_by_wgmma,
)
from tilewright.backends.cuda.pipelines import Fields, flag
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation
from tilewright.renames import renamed_fields

MEMORY = Arithmetic("tilewright.backends.cuda.attention.mma", "tilewright/cuda/attention/mma/memory.h")
BLOCK_ROWS = 16  # of one instruction
INPUTS = ("bf16", "fp16", "fp8_e4m3")
MOST_WARPS = 16
MOST_REGISTERS, ALL_REGISTERS = 255, 65536  # of a thread, and of a multiprocessor
BESIDE_REGISTERS = 36
# More of a warp that has all columns of its rows, and of fp8 there; of what is done to scores, and of dropout.
# Compiled with fewer left, some of these kernels spill.
WHOLE_REGISTERS, WHOLE_NARROW, FEATURES = 48, 16, 40


@renamed_fields({"together": "ctas_per_sm", "slots": "kv_stages"})
@dataclass(frozen=True, slots=True)
class MmaSchedule:
    """A grid of warps; those along keys share rows, and columns of the results."""

    pipeline: str
    tile_n: int  # keys of a tile
    warps_m: int
    warps_n: int
    row_blocks: int  # of 16 rows, that a warp has
    kv_stages: int  # tiles of keys or of values in flight, each in a buffer
    ctas_per_sm: int = 1  # occupancy

    pipelines: ClassVar[tuple[str, ...]] = ("mma", "mma_decode")
    serves: ClassVar[tuple[str, ...]] = ("forward", "split")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return BLOCK_ROWS * self.row_blocks * self.warps_m

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    def label(self) -> str:
        label = f"{self.pipeline}_{self.tile_m}x{self.tile_n}_warps{self.warps_m}x{self.warps_n}_stages{self.kv_stages}"
        return label + (f"_ctas{self.ctas_per_sm}" if self.ctas_per_sm > 1 else "")


def narrow(signature: AttentionSignature) -> bool:
    return DTYPES[signature.dtype_kv].bytes == 1


def tile_bytes(signature: AttentionSignature, schedule: MmaSchedule) -> tuple[int, int, int]:
    """Of the rows of queries, of a slot, and of what warps that share rows keep."""
    s, h, size = signature, schedule, DTYPES[signature.dtype_kv].bytes
    scales_rows = s.dtype_q == "bf16" and narrow(s) and s.scales != "block"
    return (
        MEMORY("mma_row_bytes", h.tile_m, s.head_dim),
        MEMORY("mma_slot_bytes", h.tile_n, s.head_dim, s.head_dim_v, size, s.pages == "vectorised"),
        MEMORY("mma_kept_bytes", h.tile_m, h.tile_n, h.warps_n, scales_rows),
    )


def shared_bytes(signature: AttentionSignature, schedule: MmaSchedule) -> int:
    rows, slot, shared = tile_bytes(signature, schedule)
    return rows + schedule.kv_stages * slot + shared


def most_slots(signature: AttentionSignature, schedule: MmaSchedule, arch: Arch) -> int:
    rows, slot, shared = tile_bytes(signature, schedule)
    return max(2, (available_bytes(schedule.ctas_per_sm, arch) - rows - shared) // slot)


def registers(signature: AttentionSignature, schedule: MmaSchedule) -> int:
    """What a thread holds: results, scores, operands of some products."""
    s, h = signature, schedule
    held = BESIDE_REGISTERS + FEATURES * (feature_registers(s) // FEATURE_REGISTERS) + 8 * narrow(s)
    held += (WHOLE_REGISTERS + WHOLE_NARROW * narrow(s)) * (h.warps_n == 1)
    return h.row_blocks * (s.head_dim_v // h.warps_n // 2 + h.tile_n // h.warps_n // 2 + 12) + held


# -- what is legal -------------------------------------------------------------------------------------------------


def _signature_rules(signature: AttentionSignature, schedule: MmaSchedule, arch: Arch) -> Iterator[Violation]:
    s = signature
    if not {"mma", "cp-async"} <= arch.features:
        yield Violation("nv-arch", f"{schedule.pipeline} needs mma.sync and cp.async, which {arch.name} does not have",
                        "use another target, or the loops pipeline")  # fmt: skip
    if s.dtype_q not in INPUTS or s.dtype_kv not in INPUTS:
        message = f"{schedule.pipeline} of {s.dtype_q} queries and {s.dtype_kv} keys"
        yield Violation("nv-inputs", message, f"use {', '.join(INPUTS)}, or the loops pipeline")

    if (s.dtype_q, s.scales) == ("fp16", "block"):
        message = "with scales per block, softmax weights are multiplied as bf16, which does not go with fp16 queries"
        yield Violation("nv-scales", message, "use bf16 queries, other scales, or the loops pipeline")


def _tile_rules(signature: AttentionSignature, schedule: MmaSchedule, arch: Arch) -> Iterator[Violation]:
    s, h = signature, schedule
    if h.warps_m * h.warps_n > MOST_WARPS:
        yield Violation("nv-warps", f"{h.warps_m} x {h.warps_n} warps", f"use at most {MOST_WARPS}")
    each = 16 if h.warps_n == 1 or narrow(s) else 8
    whole = max(16, each * h.warps_n, 32 * narrow(s))
    if h.tile_n % (each * h.warps_n) or h.tile_n % (32 if narrow(s) else 16):
        message = f"tile_n {h.tile_n} is not a multiple of what {h.warps_n} warps multiply at a time"
        yield Violation("nv-tile-n", message, f"use a multiple of {whole}")
    if s.head_dim_v % (16 * h.warps_n):
        message = f"{s.head_dim_v} columns over {h.warps_n} warps are not multiples of 16"
        yield Violation("nv-columns", message, "use fewer warps_n")
    if h.kv_stages < 2:
        yield Violation("nv-stages", f"{h.kv_stages} kv_stages: one is read while another is filled", "use 2 or more")
    yield from _resources(s, h, arch)


def _resources(s: AttentionSignature, h: MmaSchedule, arch: Arch) -> Iterator[Violation]:
    allowed = min(MOST_REGISTERS, ALL_REGISTERS // (h.threads * h.ctas_per_sm))
    if registers(s, h) > allowed:
        message = f"accumulators, scores and operands take {registers(s, h)} of {allowed} registers"
        yield Violation("nv-registers", message, "use more warps_n, a smaller tile_n, or fewer CTAs per SM")
    shared, available = shared_bytes(s, h), available_bytes(h.ctas_per_sm, arch)
    if shared > available:
        message = f"queries and KV stages take {shared} of {available} bytes of shared memory"
        yield Violation("nv-shared-memory", message, "use fewer kv_stages or a smaller tile_n")


def _violations(signature: AttentionSignature, schedule: MmaSchedule, arch: Arch) -> Iterator[Violation]:
    yield from _signature_rules(signature, schedule, arch)
    yield from _tile_rules(signature, schedule, arch)


# -- what is proposed ----------------------------------------------------------------------------------------------

# Keys of a tile, the grid of warps, blocks of 16 rows of a warp, most slots, blocks of a multiprocessor; usual first
_Tile = tuple[int, int, int, int, int, int]
_TILES: dict[int, tuple[_Tile, ...]] = {
    32: ((64, 4, 1, 2, 4, 2), (128, 4, 1, 1, 4, 2), (64, 4, 2, 1, 4, 2)),
    64: ((64, 4, 1, 2, 4, 2), (64, 8, 1, 1, 4, 1), (128, 8, 1, 1, 4, 1), (64, 4, 2, 1, 4, 2)),
    96: ((64, 4, 1, 2, 4, 2), (64, 8, 1, 1, 4, 1), (64, 4, 2, 1, 4, 1)),
    128: ((64, 4, 1, 1, 4, 3), (64, 8, 1, 1, 4, 1), (64, 4, 2, 1, 4, 1)),
    160: ((64, 8, 1, 1, 3, 1), (32, 4, 1, 1, 4, 2), (64, 4, 2, 1, 3, 1)),
    192: ((64, 8, 1, 1, 3, 1), (32, 4, 1, 1, 4, 2), (64, 4, 2, 1, 3, 1)),
    256: ((32, 8, 1, 1, 3, 1), (64, 4, 1, 1, 3, 1), (64, 4, 2, 1, 3, 1)),
    512: ((32, 4, 2, 1, 4, 1), (32, 2, 4, 1, 4, 1)),
    576: ((32, 4, 2, 1, 4, 1), (32, 2, 4, 1, 4, 1)),
}
_DECODE: dict[int, tuple[_Tile, ...]] = {
    32: ((128, 1, 2, 1, 8, 4), (64, 4, 1, 1, 4, 2)),
    64: ((64, 1, 4, 1, 8, 3), (64, 4, 1, 1, 4, 2), (128, 1, 4, 1, 8, 2)),
    96: ((64, 1, 2, 1, 8, 3), (64, 4, 1, 1, 4, 2)),
    128: ((64, 1, 4, 1, 8, 4), (64, 4, 1, 1, 4, 1), (64, 1, 4, 1, 8, 2), (64, 1, 4, 1, 8, 3), (32, 1, 4, 1, 8, 4)),
    160: ((64, 1, 2, 1, 8, 2), (64, 4, 1, 1, 4, 1)),
    192: ((64, 1, 4, 1, 6, 2), (64, 4, 1, 1, 4, 1)),
    256: ((64, 1, 4, 1, 6, 1), (32, 4, 1, 1, 4, 1), (32, 1, 4, 1, 8, 2)),
    512: ((32, 1, 4, 1, 6, 1), (32, 4, 2, 1, 4, 1), (32, 2, 4, 1, 4, 1)),
    576: ((64, 1, 8, 1, 3, 1), (32, 4, 2, 1, 4, 1), (32, 4, 4, 1, 4, 1), (32, 1, 4, 1, 2, 2), (32, 1, 4, 1, 6, 1)),
}
_FEW = 2  # tiles in `default`
LEAST_KEYS, MOST_SMALLER = 32, 4  # keys of a tile, and slots, where shared memory is little
_BESIDE = 1  # of a signature that sm_90a's own pipelines take


def _schedule(pipeline: str, tile: _Tile, signature: AttentionSignature, arch: Arch) -> MmaSchedule:
    """The tile with as many slots as fit, and what fp8 and features of scores ask for."""
    keys, rows, along, blocks, slots, ctas_per_sm = tile
    if narrow(signature):
        keys = max(keys, 16 * along, 32)
    schedule = MmaSchedule(pipeline, keys, rows, along, blocks, slots, ctas_per_sm)
    while schedule.ctas_per_sm > 1 and registers(signature, schedule) > min(
        MOST_REGISTERS, ALL_REGISTERS // (schedule.threads * schedule.ctas_per_sm)
    ):
        schedule = replace(schedule, ctas_per_sm=schedule.ctas_per_sm - 1)
    return replace(schedule, kv_stages=min(slots, most_slots(signature, schedule, arch)))


def _smaller(schedule: MmaSchedule, signature: AttentionSignature, arch: Arch) -> MmaSchedule:
    """With two slots, for an arch of little shared memory: fewer blocks beside each other, then fewer keys."""
    schedule = replace(schedule, kv_stages=2)
    while schedule.ctas_per_sm > 1 and shared_bytes(signature, schedule) > available_bytes(schedule.ctas_per_sm, arch):
        schedule = replace(schedule, ctas_per_sm=schedule.ctas_per_sm - 1)
    while schedule.tile_n > LEAST_KEYS and shared_bytes(signature, schedule) > available_bytes(
        schedule.ctas_per_sm, arch
    ):
        schedule = replace(schedule, tile_n=schedule.tile_n // 2)
    return replace(schedule, kv_stages=min(MOST_SMALLER, most_slots(signature, schedule, arch)))


def _proposed(signature: AttentionSignature, arch: Arch, wide: bool, beside: bool) -> Iterator[MmaSchedule]:
    """Tiles of a head size; few where they stand `beside` pipelines that are faster on what both take."""
    s = signature
    if s.family not in MmaSchedule.serves:
        return
    size = max(s.head_dim, s.head_dim_v)
    for pipeline, table in (("mma", _TILES), ("mma_decode", _DECODE)):
        if pipeline == "mma" and s.family == "split":
            continue
        tiles = table.get(size, ())
        count = len(tiles) if wide else _BESIDE if beside else _FEW
        schedules = dict.fromkeys(_schedule(pipeline, tile, s, arch) for tile in tiles)
        legal = [each for each in schedules if not any(_violations(s, each, arch))]
        if len(legal) < min(count, _FEW):
            # One block of rows a warp comes first: alone on a multiprocessor nobody hides what two keep in memory.
            smaller = dict.fromkeys(_smaller(each, s, arch) for each in schedules if each not in legal)
            ordered = sorted(smaller, key=lambda each: each.row_blocks)
            legal += [each for each in ordered if not any(_violations(s, each, arch))]
        yield from legal[:count]


class Mma(CudaAttentionFamily):
    name = "mma"
    schedules = (MmaSchedule,)
    device, host = "TW_DEVICE_ATTENTION_MMA", "HostAttentionMma"

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[MmaSchedule]:
        return _proposed(signature, arch, pool != "default", taken_by_wgmma(signature, arch))

    def violations(self, signature: AttentionSignature, schedule: MmaSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        s, h = spec.signature, spec.schedule
        named = ("tile_m", "tile_n", "warps_m", "warps_n", "kv_stages", "ctas_per_sm")
        fields = {name: getattr(h, name) for name in named} | held(s)
        fields |= {"packs": h.pipeline == "mma_decode", "narrow": narrow(s), "size_kv": DTYPES[s.dtype_kv].bytes}
        return fields | {"scored": int(fields["scored"] or s.scales == "block")}

    def config(self, spec: KernelSpec) -> Fields:
        h: MmaSchedule = spec.schedule
        named = ("tile_n", "warps_m", "warps_n", "row_blocks", "kv_stages", "ctas_per_sm")
        return {**{name: getattr(h, name) for name in named}, "pack_heads": flag(h.pipeline == "mma_decode")}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARP, ("LDGSTS",), shared_bytes(spec.signature, spec.schedule))


FAMILY = Mma()
