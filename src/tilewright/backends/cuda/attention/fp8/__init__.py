"""The fp8 pipeline of attention on sm_90a: both products in e4m3, values transposed through shared memory.

As `ws`, with tiles of query rows of one head; few rows are read as fast by `mma_decode`, which packs heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.attention.shared import (
    FEATURE_REGISTERS,
    CudaAttentionFamily,
    engine_rules,
    feature_registers,
    held,
    register_rule,
    shared_rule,
)
from tilewright.backends.cuda.pipelines import Fields
from tilewright.dataclass import dataclass
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

MEMORY = Arithmetic("tilewright.backends.cuda.attention.fp8", "tilewright/cuda/attention/fp8/memory.h")
HEADS = (32, 64, 96, 128, 160, 192, 256)  # widths wgmma is spelled out for
COLUMNS = range(64, 257, 32)  # keys of a tile, which goes in two parts of whole products


@dataclass(frozen=True, slots=True)
class Fp8Schedule:
    """A producer warp, three warps that transpose values, and consumer warpgroups, with 64 rows each."""

    pipeline: str = field(default="fp8", init=False)
    tile_n: int  # keys of a tile
    warpgroups: int  # that multiply
    stages: int  # tiles of keys and values under way

    pipelines: ClassVar[tuple[str, ...]] = ("fp8",)
    serves: ClassVar[tuple[str, ...]] = ("forward", "split")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return 64 * self.warpgroups

    def label(self) -> str:
        return f"fp8_{self.tile_m}x{self.tile_n}_stages{self.stages}"


def tile_bytes(signature: AttentionSignature, schedule: Fp8Schedule) -> tuple[int, int]:
    """Of the rows of queries, and of a stage of keys, values and values transposed."""
    s, h = signature, schedule
    rows = MEMORY("fp8_tile_bytes", h.tile_m, s.head_dim)
    return rows, MEMORY("fp8_stage_bytes", h.tile_n, s.head_dim, s.head_dim_v)


def shared_bytes(signature: AttentionSignature, schedule: Fp8Schedule) -> int:
    rows, stage = tile_bytes(signature, schedule)
    return rows + schedule.stages * stage + MEMORY("fp8_beside")


def most_stages(signature: AttentionSignature, schedule: Fp8Schedule, arch: Arch) -> int:
    rows, stage = tile_bytes(signature, schedule)
    return max(1, (arch.scratch_bytes - MEMORY("fp8_beside") - rows) // stage)


def registers(signature: AttentionSignature, schedule: Fp8Schedule) -> int:
    """What a consumer thread holds: results, scores, and these again as weights of one byte."""
    s = signature
    return MEMORY("fp8_held_registers", s.head_dim_v, schedule.tile_n, feature_registers(s) // FEATURE_REGISTERS)


def allowed_registers(signature: AttentionSignature, schedule: Fp8Schedule) -> int:
    """Of a consumer thread; 0 where no kernel has so many warpgroups."""
    return MEMORY("fp8_consumer_registers", schedule.warpgroups, registers(signature, schedule))


def _signature_rules(signature: AttentionSignature, schedule: Fp8Schedule, arch: Arch) -> Iterator[Violation]:
    s = signature
    yield from engine_rules("fp8", s, arch, ("fp8_e4m3",), "the mma pipeline")
    if s.scales == "block":
        message = "this pipeline has one scale per tile of keys, whatever scale_block is"
        yield Violation("nv-scales", message, "use scales of tensors or heads, or the mma pipeline")
    if s.head_dim not in HEADS or s.head_dim_v not in HEADS:
        message = f"head_dim {s.head_dim} and head_dim_v {s.head_dim_v}"
        yield Violation("nv-heads", message, f"use {', '.join(map(str, HEADS))}, or the mma pipeline")


def _tile_rules(signature: AttentionSignature, schedule: Fp8Schedule, arch: Arch) -> Iterator[Violation]:
    s, h = signature, schedule
    if h.tile_n not in COLUMNS:
        message = f"tile_n {h.tile_n} is not a multiple of 64: two halves of wgmma steps of 32 keys"
        yield Violation("nv-tile-n", message, "use 64 to 256 by 32")
    allowed = allowed_registers(s, h)
    if not allowed:
        yield Violation("nv-warpgroups", f"{h.warpgroups} consumer warpgroups", "use 1 to 3")
    else:
        yield from register_rule(registers(s, h), allowed, "use a smaller tile_n or fewer warpgroups")
    yield from shared_rule(shared_bytes(s, h), arch.scratch_bytes)


def _violations(signature: AttentionSignature, schedule: Fp8Schedule, arch: Arch) -> Iterator[Violation]:
    yield from _signature_rules(signature, schedule, arch)
    yield from _tile_rules(signature, schedule, arch)


# Warpgroups, keys of a tile and most stages; the usual first.
_TILES: dict[int, tuple[tuple[int, int, int], ...]] = {
    32: ((3, 128, 4), (2, 192, 4)),
    64: ((3, 128, 4), (2, 192, 3), (2, 128, 4)),
    96: ((2, 160, 3), (3, 96, 4), (2, 128, 3)),
    128: ((2, 192, 2), (2, 160, 2), (2, 128, 3), (3, 96, 3)),
    160: ((2, 128, 2), (2, 96, 2)),
    192: ((2, 128, 2), (2, 96, 2)),
    256: ((2, 64, 2), (2, 96, 2)),
}
_FEW = 2


def _proposed(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[Fp8Schedule]:
    s = signature
    if s.family != "forward" or not {"wgmma", "tma"} <= arch.features:
        return
    schedules = []
    for warpgroups, keys, stages in _TILES.get(max(s.head_dim, s.head_dim_v), ()):
        schedule = Fp8Schedule(keys, warpgroups, 1)
        while schedule.tile_n > COLUMNS[0] and registers(s, schedule) > allowed_registers(s, schedule):
            schedule = replace(schedule, tile_n=schedule.tile_n - 32)
        schedules.append(replace(schedule, stages=min(stages, most_stages(s, schedule, arch))))
    legal = [schedule for schedule in dict.fromkeys(schedules) if not any(_violations(s, schedule, arch))]
    yield from legal if wide else legal[:_FEW]


class Fp8(CudaAttentionFamily):
    name = "fp8"
    schedules = (Fp8Schedule,)
    device, host = "TW_DEVICE_ATTENTION_FP8", "HostAttentionFp8"

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[Fp8Schedule]:
        return _proposed(signature, arch, pool != "default")

    def violations(self, signature: AttentionSignature, schedule: Fp8Schedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"tile_n": spec.schedule.tile_n, "warpgroups": spec.schedule.warpgroups, **held(spec.signature)}

    def config(self, spec: KernelSpec) -> Fields:
        h: Fp8Schedule = spec.schedule
        return {"tile_n": h.tile_n, "warpgroups": h.warpgroups, "stages": h.stages}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), shared_bytes(spec.signature, spec.schedule))


FAMILY = Fp8()
