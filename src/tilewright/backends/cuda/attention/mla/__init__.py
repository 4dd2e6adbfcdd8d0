"""The mla pipeline of attention on sm_90a: heads of up to 576 elements whose values are the first 512 of their keys.

A tile of shared memory is keys and values at once, and is fetched once.  64 rows of a block are query heads of one head
of keys, side by side; two warpgroups have half of the columns each.  Values that are stored apart from keys have a
tile of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.attention.shared import (
    INPUTS,
    CudaAttentionFamily,
    engine_rules,
    feature_registers,
    held,
    register_rule,
    shared_rule,
)
from tilewright.backends.cuda.pipelines import Fields
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation
from tilewright.renames import renamed_fields

MEMORY = Arithmetic("tilewright.backends.cuda.attention.mla", "tilewright/cuda/attention/mla/memory.h")
ROWS = MEMORY("mla_rows")  # of a block
HEADS_QK, HEAD_V = (512, 576), 512
COLUMNS = (16, 32, 48, 64, 80, 96)  # keys of a tile
REGISTERS, BESIDE_REGISTERS = MEMORY("mla_consumer_registers"), 26  # of a consumer thread


@renamed_fields({}, {"pipeline": {"latent": "mla"}})
@dataclass(frozen=True, slots=True)
class MlaSchedule:
    """A producer warp, a warpgroup that scores, and two that add up half of the columns each."""

    pipeline: str = field(default="mla", init=False)
    tile_n: int  # keys of a tile
    stages: int  # tiles under way

    pipelines: ClassVar[tuple[str, ...]] = ("mla",)
    serves: ClassVar[tuple[str, ...]] = ("forward", "split")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return ROWS

    def label(self) -> str:
        return f"mla_{self.tile_m}x{self.tile_n}_stages{self.stages}"


def shared_bytes(signature: AttentionSignature, schedule: MlaSchedule) -> int:
    return MEMORY("mla_shared_bytes", schedule.stages, schedule.tile_n, signature.head_dim)


def registers(signature: AttentionSignature, schedule: MlaSchedule) -> int:
    """What a scoring thread holds: half of the results, scores, and these again as weights of two bytes."""
    s = signature
    held = BESIDE_REGISTERS + feature_registers(s)
    return s.head_dim_v // 4 + schedule.tile_n // 2 + schedule.tile_n // 4 + held


def _signature_rules(signature: AttentionSignature, schedule: MlaSchedule, arch: Arch) -> Iterator[Violation]:
    s = signature
    yield from engine_rules("mla", s, arch, INPUTS, "the mma pipeline")
    if s.head_dim not in HEADS_QK or s.head_dim_v != HEAD_V:
        message = f"head_dim {s.head_dim} and head_dim_v {s.head_dim_v}"
        yield Violation("nv-heads", message, f"use {HEADS_QK[0]} or {HEADS_QK[1]} and {HEAD_V}, or another pipeline")


def _tile_rules(signature: AttentionSignature, schedule: MlaSchedule, arch: Arch) -> Iterator[Violation]:
    s, h = signature, schedule
    if h.tile_n not in COLUMNS:
        yield Violation(
            "nv-tile-n", f"tile_n {h.tile_n} is not a multiple of 16, the keys of one wgmma", "use 16 to 96 by 16"
        )
    if h.stages < 2:
        yield Violation("nv-stages", f"{h.stages} stages: keys and values may need one each", "use 2 or more")
    yield from register_rule(registers(s, h), REGISTERS, "use a smaller tile_n")
    yield from shared_rule(shared_bytes(s, h), arch.scratch_bytes)


def _violations(signature: AttentionSignature, schedule: MlaSchedule, arch: Arch) -> Iterator[Violation]:
    yield from _signature_rules(signature, schedule, arch)
    yield from _tile_rules(signature, schedule, arch)


_TILES = ((64, 2), (32, 4), (48, 2))  # keys of a tile, and stages; the usual first
_FEW = 2


def _proposed(signature: AttentionSignature, arch: Arch, wide: bool) -> Iterator[MlaSchedule]:
    if signature.family not in MlaSchedule.serves:
        return
    schedules = [MlaSchedule(*tile) for tile in _TILES]
    legal = [schedule for schedule in schedules if not any(_violations(signature, schedule, arch))]
    yield from legal if wide else legal[:_FEW]


class Mla(CudaAttentionFamily):
    name = "mla"
    schedules = (MlaSchedule,)
    device, host = "TW_DEVICE_ATTENTION_MLA", "HostAttentionMla"

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[MlaSchedule]:
        return _proposed(signature, arch, pool != "default")

    def violations(self, signature: AttentionSignature, schedule: MlaSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        tiles = {"tile_n": spec.schedule.tile_n, "stages": spec.schedule.stages}
        return {**tiles, "size_kv": DTYPES[spec.signature.dtype_kv].bytes, **held(spec.signature)}

    def config(self, spec: KernelSpec) -> Fields:
        return {"tile_n": spec.schedule.tile_n, "stages": spec.schedule.stages}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), shared_bytes(spec.signature, spec.schedule))


FAMILY = Mla()
