"""mma, of sm_80 and later: cp.async feeds mma.sync, in two passes that add nothing up over blocks.

The first pass owns keys and writes dk and dv, the second owns rows and writes dq; both score anew.  Every feature, any
stride; the same bits in every run, but for the gradients of slopes and of a bias that repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cuda.attention_backward.shared import BLOCK_SHARED, INPUTS, CudaAttentionBackwardFamily, scored
from tilewright.backends.cuda.pipelines import Fields
from tilewright.dataclass import dataclass
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation
from tilewright.renames import renamed_fields

LINES = 16  # of one instruction
STAGES = 2
MOST_WARPS = 16
MOST_HEAD = 256
MOST_REGISTERS, ALL_REGISTERS = 255, 65536  # of a thread, and of a multiprocessor
BESIDE_REGISTERS, FEATURE_REGISTERS = 68, 20


@renamed_fields({"warps": "warps_m", "shared_by": "warps_n"})
@dataclass(frozen=True, slots=True)
class MmaSchedule:
    """Warps that have 16 lines each of what a block owns, or share them."""

    pipeline: str
    tile: int  # lines that are met at once
    warps_m: int  # along what is owned
    warps_n: int = 1  # share the lines, and divide columns

    pipelines: ClassVar[tuple[str, ...]] = ("mma",)
    serves: ClassVar[tuple[str, ...]] = ("grad",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    def label(self) -> str:
        return f"{self.pipeline}_{LINES * self.warps_m}x{self.tile}_warps{self.warps_m}x{self.warps_n}"


def _pitch(size: int) -> int:
    return size if size // 16 % 2 else size + 16


def shared_bytes(signature: AttentionBackwardSignature, schedule: MmaSchedule) -> int:
    """cuda/attention_backward/mma/shape.h."""
    h, own = schedule, LINES * schedule.warps_m
    line = _pitch(signature.head_dim * 2) + _pitch(signature.head_dim_v * 2)
    weights = own * _pitch(h.tile * 2) if h.warps_n > 1 else 0
    return own * line + STAGES * h.tile * (line + 8) + 2 * weights


def registers(signature: AttentionBackwardSignature, schedule: MmaSchedule) -> int:
    """What a thread holds in the first pass: accumulators, scores and their gradients."""
    s, h = signature, schedule
    beside = BESIDE_REGISTERS + FEATURE_REGISTERS * ((s.softcap or s.bias != "none" or s.masked) + s.dropout)
    return (s.head_dim + s.head_dim_v) // h.warps_n // 2 + h.tile // h.warps_n + beside


# Lines that are met, warps, and warps that share lines, by the larger head; the usual one first.
_Tile = tuple[int, int, int]
_TILES: dict[int, tuple[_Tile, ...]] = {
    32: ((64, 8, 1), (64, 4, 1)),
    64: ((64, 8, 1), (64, 4, 1), (32, 4, 1)),
    96: ((64, 8, 1), (32, 8, 1), (32, 4, 1), (32, 4, 2)),
    128: ((32, 8, 1), (32, 4, 1), (32, 4, 2), (64, 4, 2)),
    160: ((32, 4, 2), (32, 2, 2)),
    192: ((32, 4, 2), (32, 2, 2)),
    256: ((32, 4, 2), (32, 2, 2), (32, 2, 4), (16, 2, 2)),
}
_LITTLE = ((16, 4, 1), (16, 2, 1), (16, 2, 2))  # where shared memory (48 KB, say) holds none of these
_FEW = 1


def _violations(signature: AttentionBackwardSignature, schedule: MmaSchedule, arch: Arch) -> Iterator[Violation]:
    s, h = signature, schedule
    if not {"mma", "cp-async"} <= arch.features:
        message = f"{h.pipeline} needs mma.sync and cp.async, which {arch.name} has not"
        yield Violation("nv-arch", message, "use another target, or the loops pipeline")
    if s.dtype not in INPUTS:
        yield Violation("nv-inputs", f"{h.pipeline} of {s.dtype}", f"use {' or '.join(INPUTS)}, or the loops pipeline")
    if s.accumulate != "none":
        message = f"{h.pipeline} leaves no accumulators of {s.accumulate}"
        yield Violation("nv-accumulate", message, "use accumulate none")
    if max(s.head_dim, s.head_dim_v) > MOST_HEAD:
        message = f"{h.pipeline} with heads of {s.head_dim} and {s.head_dim_v}"
        yield Violation("nv-heads", message, f"use at most {MOST_HEAD}, or the loops pipeline")
    yield from _tile_rules(s, h, arch)


def _tile_rules(s: AttentionBackwardSignature, h: MmaSchedule, arch: Arch) -> Iterator[Violation]:
    if h.warps_m * h.warps_n > MOST_WARPS:
        yield Violation("nv-warps", f"{h.warps_m} x {h.warps_n} warps", f"use at most {MOST_WARPS}")
    if h.tile % 16 or h.tile % ((8 if h.warps_n > 1 else 16) * h.warps_n):
        message = f"tile {h.tile} is not whole products of {h.warps_n} warps"
        yield Violation("nv-tile", message, f"use a multiple of {max(16, 8 * h.warps_n)}")
    if any(columns % (16 * h.warps_n) for columns in (s.head_dim, s.head_dim_v)):
        message = f"columns of {h.warps_n} warps are not whole products of 16"
        yield Violation("nv-columns", message, "use a smaller warps_n")
    allowed = min(MOST_REGISTERS, ALL_REGISTERS // h.threads)
    if registers(s, h) > allowed:
        message = f"accumulators and scores take {registers(s, h)} of {allowed} registers"
        yield Violation("nv-registers", message, "use a larger warps_n, or a smaller tile")
    taken, available = shared_bytes(s, h), arch.scratch_bytes - BLOCK_SHARED
    if taken > available:
        message = f"lines and stages take {taken} of {available} bytes of shared memory"
        yield Violation("nv-shared-memory", message, "use fewer warps or a smaller tile")


def _legal(tiles: tuple[_Tile, ...], signature: AttentionBackwardSignature, arch: Arch) -> list[MmaSchedule]:
    schedules = (MmaSchedule("mma", *tile) for tile in tiles)
    return [schedule for schedule in schedules if not any(_violations(signature, schedule, arch))]


class Mma(CudaAttentionBackwardFamily):
    name = "mma"
    schedules = (MmaSchedule,)

    def device(self, spec: KernelSpec) -> str:
        return "TW_DEVICE_ATTENTION_BACKWARD_MMA"

    def host(self, spec: KernelSpec) -> str:
        return "HostAttentionBackwardMma"

    def beside(self, spec: KernelSpec) -> tuple[str, ...]:
        return "_dq", "_clear"

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[MmaSchedule]:
        s = signature
        if s.family != "grad":
            return
        tiles = _TILES.get(max(s.head_dim, s.head_dim_v), ())
        legal = _legal(tiles, s, arch) or _legal(_LITTLE if tiles else (), s, arch)
        yield from legal[: _FEW if pool == "default" else len(legal)]

    def violations(
        self, signature: AttentionBackwardSignature, schedule: MmaSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        s, h = spec.signature, spec.schedule
        return {
            "own": LINES * h.warps_m, "met": h.tile, "warps_n": h.warps_n, "head_dim": s.head_dim,
            "head_dim_v": s.head_dim_v, "scored": scored(s), "shared_bytes": shared_bytes(s, h),
        }  # fmt: skip

    def config(self, spec: KernelSpec) -> Fields:
        h: MmaSchedule = spec.schedule
        return {"tile": h.tile, "warps_m": h.warps_m, "warps_n": h.warps_n}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARP, ("LDGSTS",), shared_bytes(spec.signature, spec.schedule))


FAMILY = Mma()
