"""tiled: dq, dk and dv by matrix instructions, in kernels of our own: MFMA of CDNA, WMMA of RDNA.

Any stride, size, alignment and feature.  Every sum of dq, dk and dv is one wave's, so that they are the same bits in
every run; the gradients of slopes, and of a bias that repeats, are added in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.hip.attention_backward.ck_tile import dispatcher, legality
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.ck_tile.tiles import CkTileBackwardSchedule
from tilewright.backends.hip.attention_backward.shared import HipAttentionBackwardFamily
from tilewright.backends.hip.matrix import SIDE, instruction, lane_registers, multiplies
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation

COMPILE_MEMORY = 512 << 20
MAX_THREADS = 1024
MOST_LINES = 128  # of a block: as many as are prepared together
ACCESS_BYTES = 16
# Registers of a lane for fragments, addresses and entries, more where something is done to scores; and what the
# compiler moves ahead, as a share of sums.  Of what was compiled to see, one of gfx1201 with 268 counted spilled, and
# none with 244.  RDNA 3's fragments are twice as long: 64 x 64 fits with one feature and four waves; with two features
# (3 registers), with a window and one (5), with one wave (14) and with 96 x 64 (57) it spilled.  On gfx1201 heads of
# 128 fit with four waves; with two, whose lanes hold twice as many pieces of a tile, 14 registers did not.
BESIDE, SCORED, AHEAD, MORE_PIECES = 72, 24, 1.2, 7
BESIDE_TWICE, FEATURE_TWICE, PIECE_TWICE, AHEAD_TWICE = 88, 8, 5, 1.9
# Staged: of what was compiled gfx1201 spilled 7 with 9 pieces, gfx90a had 36 more than with 7 of each; RDNA 3 fewer.
MORE_PIECES_STAGED, BESIDE_TWICE_STAGED = 10, 52
# Lines of a tile that is walked, and waves of 16 lines of their own; the usual first.
_TILES = ((32, 4), (32, 2), (16, 4), (32, 1), (16, 2), (16, 1))
# Likewise, where a wave has no registers for all sums of its lines: waves share lines, each with a part of the columns.
_SHARED = ((16, 8, 2), (16, 8, 4), (16, 4, 2), (16, 4, 4), (16, 8, 8))
# And where LDS has no room for heads of both sides.
_STAGED = ((16, 8, 4), (32, 8, 8), (16, 8, 8), (16, 16, 16), (16, 4, 4))
MOST_STAGED = 256  # columns of a head in LDS at a time
_FEW = 2  # in `default`


@dataclass(frozen=True, slots=True)
class TiledBackwardSchedule:
    """A block of waves with 16 lines of their own each: rows of queries for dq, keys for dk and dv."""

    pipeline: str = field(default="tiled", init=False)
    tile_n: int  # lines of a tile of the other side
    waves: int
    column_waves: int = 1  # waves that have the same lines, and columns of the sums of their own
    staged: bool = False  # where LDS is small: it has the operands of one product at a time

    pipelines: ClassVar[tuple[str, ...]] = ("tiled",)
    serves: ClassVar[tuple[str, ...]] = ("grad",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return SIDE * self.waves // self.column_waves

    @property
    def tile(self) -> tuple[int, int]:
        """Lines of a block, and of a tile that it walks."""
        return self.tile_m, self.tile_n

    def label(self) -> str:
        shared = f"_columns{self.column_waves}" if self.column_waves > 1 else ""
        return f"{self.pipeline}_{self.tile_m}x{self.tile_n}{shared}{'_staged' if self.staged else ''}"


def matrix_rules(signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
    """Which gradients these kernels have on the arch."""
    s = signature
    if s.family != "grad":
        yield Violation("amd-backward-family", f"{s.family} multiplies nothing", "use another pipeline")
        return
    if not multiplies(s.dtype, arch):
        message = f"{arch.name} has no matrix instruction for {s.dtype}"
        yield Violation("amd-matrix", message, "use loops")
    if s.accumulate != "none":
        message = f"accumulate {s.accumulate}: the kernels add every result up themselves"
        yield Violation("amd-backward-sums", message, "use accumulate none")


def lds_bytes(signature: AttentionBackwardSignature, schedule: TiledBackwardSchedule) -> int:
    s, h, size = signature, schedule, DTYPES[signature.dtype].bytes
    heads, transposed = (s.head_dim, s.head_dim_v), h.tile_n * size + ACCESS_BYTES
    if h.staged:
        parts = [head // -(-head // MOST_STAGED) * size + ACCESS_BYTES for head in heads]
        return max((h.tile_m + h.tile_n) * max(parts), max(heads) * transposed)
    lines = sum(heads) * size + 2 * ACCESS_BYTES
    return (h.tile_m + h.tile_n) * lines + sum(heads) * transposed


def sums(signature: AttentionBackwardSignature, schedule: TiledBackwardSchedule, arch: Arch) -> int:
    """Registers of a lane that hold sums of dk and dv: accumulation registers do."""
    columns = sum(-(-head // (SIDE * schedule.column_waves)) for head in (signature.head_dim, signature.head_dim_v))
    return SIDE * SIDE * columns // arch.warp_size


def wanted_registers(signature: AttentionBackwardSignature, schedule: TiledBackwardSchedule, arch: Arch) -> int:
    """Of a lane: sums of dk and dv, scores and their gradients, and the rest."""
    s, h = signature, schedule
    added_up = sums(s, h, arch)
    scores = 2 * SIDE * h.tile_n // arch.warp_size
    added = s.dbias + s.dalibi
    features = s.softcap + s.dropout + s.masked + (s.bias != "none") + added
    most = max(s.head_dim, s.head_dim_v) * DTYPES[s.dtype].bytes // ACCESS_BYTES
    pieces = -(-h.tile_n * most // _threads(h, arch))
    if instruction(s.dtype, arch).groups == 1 and h.staged:
        return int((added_up + scores) * AHEAD_TWICE) + BESIDE_TWICE_STAGED + PIECE_TWICE * pieces
    if instruction(s.dtype, arch).groups == 1:
        beside = BESIDE_TWICE + FEATURE_TWICE * (features + (features and s.mask != "none")) + PIECE_TWICE * pieces
        return int((added_up + scores) * AHEAD_TWICE) + beside
    scored = SCORED * ((features > 0) + (added > 0))
    piece = MORE_PIECES_STAGED if h.staged else MORE_PIECES
    return int((added_up + scores) * AHEAD) + BESIDE + scored + piece * max(0, pieces - 2)


def most_registers(schedule: TiledBackwardSchedule, arch: Arch) -> int:
    return lane_registers(schedule.waves, arch)


class Tiled(HipAttentionBackwardFamily):
    name = "tiled"
    schedules = (TiledBackwardSchedule,)

    def host(self, spec: KernelSpec) -> str:
        return "AttentionBackwardTiled"

    def proposals(
        self, pool: str, signature: AttentionBackwardSignature, arch: Arch
    ) -> Iterator[TiledBackwardSchedule]:
        """In the pools of CK Tile's dispatcher where CK Tile has no kernel, in the others always."""
        if next(matrix_rules(signature, arch), None) is not None:
            return
        if pool in POOLS and (
            next(dispatcher.profile_violations(pool, signature, arch), None) is not None
            or _has_ck_tile(pool, signature, arch)
        ):
            return
        if pool in ("full", "profiler"):
            yield from (TiledBackwardSchedule(lines, waves) for lines, waves in product((16, 32, 64), (1, 2, 4, 8)))
            yield from _sharing()
            return
        schedules = (*(TiledBackwardSchedule(*tile) for tile in _TILES), *_sharing())
        legal = (each for each in schedules if next(self.violations(signature, each, arch), None) is None)
        yield from (each for each, _ in zip(legal, range(_FEW), strict=False))

    def violations(
        self, signature: AttentionBackwardSignature, schedule: TiledBackwardSchedule, arch: Arch
    ) -> Iterator[Violation]:
        missing = list(matrix_rules(signature, arch))
        yield from missing
        if not missing:
            yield from _tile_rules(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h = spec.schedule
        return {
            "tile_m": h.tile_m, "tile_n": h.tile_n, "threads": _threads(h, arch_by_name(spec.arch)),
            "column_waves": h.column_waves, "staged": int(h.staged),
        }  # fmt: skip

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        fields = {**self.numbers(spec), "lds_bytes": lds_bytes(spec.signature, spec.schedule)}
        return {**super().context(spec), "fields": fields}

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(("v_wmma_",) if "wmma" in arch_by_name(spec.arch).features else ("v_mfma_",))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def _sharing() -> Iterator[TiledBackwardSchedule]:
    yield from (TiledBackwardSchedule(*tile) for tile in _SHARED)
    yield from (TiledBackwardSchedule(*tile, staged=True) for tile in _STAGED)


def _has_ck_tile(pool: str, signature: AttentionBackwardSignature, arch: Arch) -> bool:
    """Whether a pool by a profile's name holds a kernel of CK Tile for a signature."""
    if next(legality.signature_rules(signature, arch), None) is not None:
        return False
    proposed = dispatcher.profile_schedules(pool, signature, arch)
    return any(
        isinstance(schedule, CkTileBackwardSchedule)
        and next(legality.violations(signature, schedule, arch), None) is None
        for schedule in proposed
    )


def _threads(schedule: TiledBackwardSchedule, arch: Arch) -> int:
    return schedule.waves * arch.warp_size


def _shared_out(columns: int, schedule: TiledBackwardSchedule) -> bool:
    """Whether waves have as many columns, of 16 elements, or, staged, the last ones fewer."""
    shares = schedule.column_waves
    return columns >= shares if schedule.staged else columns % shares == 0


def _tile_rules(
    signature: AttentionBackwardSignature, schedule: TiledBackwardSchedule, arch: Arch
) -> Iterator[Violation]:
    s, h = signature, schedule
    if h.waves % h.column_waves or not all(_shared_out(head // SIDE, h) for head in (s.head_dim, s.head_dim_v)):
        heads = f"heads of {s.head_dim} and {s.head_dim_v}"
        message = f"column_waves {h.column_waves}: {h.waves} waves and {heads} are not whole shares"
        yield Violation("amd-warps", message, "use a divisor of waves and of the heads / 16")
        return
    unit = instruction(s.dtype, arch)
    least = max(SIDE, unit.groups * unit.bytes // DTYPES[s.dtype].bytes)
    if h.tile_n % least or MOST_LINES % h.tile_n:
        message = f"tile_n {h.tile_n}: an instruction of {s.dtype} takes {least}, and {MOST_LINES} are whole tiles"
        yield Violation("amd-tile-size", message, f"use {least} to {MOST_LINES}, a power of two")
        return
    if MOST_LINES % h.tile_m or _threads(h, arch) > MAX_THREADS:
        yield Violation("amd-warps", f"{h.waves} waves of 16 lines", f"use 2^n waves, of {MOST_LINES} lines at most")
        return
    if (bytes_ := lds_bytes(s, h)) > arch.scratch_bytes:
        message = f"{bytes_} bytes of LDS, and there are {arch.scratch_bytes}"
        yield Violation("amd-lds", message, "use a smaller tile_n, fewer waves, or staged")
    if (wanted := wanted_registers(s, h, arch)) > (most := most_registers(h, arch)):
        message = f"a lane wants {wanted} registers and has {most}: over that it spills"
        yield Violation("amd-registers", message, "use a smaller tile_n, column_waves, or loops")
    elif (computed := wanted - sums(s, h, arch)) > arch.vector_registers:  # one with 370 had 420 bytes of scratch
        message = f"a lane computes in {computed} registers and has {arch.vector_registers} that are not for sums alone"
        yield Violation("amd-registers", message, "use a smaller tile_n, more waves, column_waves, or loops")


FAMILY = Tiled()
