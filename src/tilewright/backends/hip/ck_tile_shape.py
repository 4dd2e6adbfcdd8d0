"""The arithmetic of CK Tile's matrix product on a wave of 64 lanes: threads, access widths, LDS, registers, loops.

Every number here is what the templates compute for themselves; generated files assert that both
agree, so a header version that counts differently fails to compile instead of failing to fit.  Ops whose kernels are
such a product (a Multiplied, done by a Tiled) share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Protocol

from tilewright.backends.hip.ck_tile_pipelines import PIPELINES, Pipeline
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES

Shape = tuple[int, int, int]


class Multiplied(Protocol):
    """What is multiplied: the fields of a signature that count here."""

    @property
    def dtype_a(self) -> str: ...
    @property
    def dtype_b(self) -> str: ...
    @property
    def dtype_acc(self) -> str: ...
    @property
    def dtype_c(self) -> str: ...
    @property
    def layout(self) -> str: ...


class Tiled(Protocol):
    """How: the fields of a schedule that count here."""

    @property
    def pipeline(self) -> str: ...
    @property
    def tile(self) -> Shape: ...
    @property
    def warp_tile(self) -> Shape: ...
    @property
    def warp_grid(self) -> Shape: ...
    @property
    def scheduler(self) -> str: ...
    @property
    def store(self) -> str: ...
    @property
    def persistent(self) -> bool: ...
    @property
    def split_k(self) -> int: ...
    @property
    def store_width(self) -> int: ...


WAVE = 64
NATIVE_BYTES = 16  # of one access of a lane
SUM_BYTES = 4  # of a sum, fp32 or int32
WAVE_LDS_BYTES = 2048  # a wave's part of the LDS of a compute unit that is full of waves
ACCUMULATORS = 256  # registers of a lane that hold sums and nothing else
HELD = 16  # sums that a lane takes up at once for single stores
IN_FLIGHT_BYTES = 32768  # what a pipeline wants under way on a compute unit that prefetches as much as it needs


def bytes_of(name: str) -> int:
    return DTYPES[name].bytes


def pipeline_of(schedule: Tiled) -> Pipeline:
    """What the schedule's pipeline does."""
    return PIPELINES[schedule.pipeline]


def threads(schedule: Tiled) -> int:
    return WAVE * prod(schedule.warp_grid)


def repeat(schedule: Tiled) -> Shape:
    """How often each warp repeats its warp tile along m, n, k."""
    m, n, k = (schedule.tile[i] // (schedule.warp_grid[i] * schedule.warp_tile[i]) for i in range(3))
    return (m, n, k)


def _load_width(size: int, elements: int, contiguous: int, lanes: int) -> int:
    """Elements of one load: as wide as 16 or 8 bytes where tile row and lane's share allow it, else one."""
    share = elements // lanes
    for width in (NATIVE_BYTES // size, NATIVE_BYTES // 2 // size):
        if contiguous % width == 0 and share % width == 0:
            return width
    return 1


def width_a(signature: Multiplied, schedule: Tiled) -> int:
    m, _, k = schedule.tile
    contiguous = k if signature.layout[0] == "r" else m
    return _load_width(bytes_of(signature.dtype_a), m * k, contiguous, threads(schedule))


def width_b(signature: Multiplied, schedule: Tiled) -> int:
    _, n, k = schedule.tile
    contiguous = n if signature.layout[1] == "r" else k
    return _load_width(bytes_of(signature.dtype_b), n * k, contiguous, threads(schedule))


def _row_of_warps(schedule: Tiled) -> int:
    return schedule.warp_grid[1] * schedule.warp_tile[1]


def width_c(signature: Multiplied, schedule: Tiled) -> int:
    """Elements of one store: through LDS as wide as a lane can, directly one (a lane holds a column)."""
    if schedule.store != "cshuffle":
        return 1
    native = min(_row_of_warps(schedule), NATIVE_BYTES // bytes_of(signature.dtype_c))
    return schedule.store_width or native


class Turn(NamedTuple):
    """What leaves a block at once: warp tiles of each wave along m and n, or one of `parts` slabs of rows of one."""

    m: int
    n: int
    parts: int


def _staged(signature: Multiplied, schedule: Tiled) -> int:
    """One buffer of LDS in which the pipeline stages A and B."""
    m, n, k = schedule.tile
    size_a, size_b = bytes_of(signature.dtype_a), bytes_of(signature.dtype_b)
    pipeline = pipeline_of(schedule)
    if pipeline.packed_b:
        # Only A is staged; 32-wide warp tiles keep one row apart against bank conflicts.
        pack = NATIVE_BYTES // size_a
        wide = schedule.warp_tile[0] != 16 or schedule.warp_tile[1] != 16
        return ((k // pack) * (m + 1) - 1) * pack * size_a if wide else m * k * size_a
    stage = -(-m * k * size_a // 16) * 16 + -(-n * k * size_b // 16) * 16
    # One group of waves hands its sums to the other.
    return max(stage, m * n * SUM_BYTES) if pipeline.wave_groups > 1 else stage


def _largest(count: int, fits: Callable[[int], bool]) -> int:
    """The largest divisor of a count that fits, or 1."""
    return next((divisor for divisor in range(count, 1, -1) if count % divisor == 0 and fits(divisor)), 1)


def turn(signature: Multiplied, schedule: Tiled) -> Turn:
    """Turns of the store: through LDS as large as what is staged there, or as leaves a compute unit full of waves."""
    along_m, along_n, _ = repeat(schedule)
    held = schedule.warp_tile[0] * schedule.warp_tile[1] // WAVE
    if schedule.store != "cshuffle":
        return Turn(1, _largest(along_n, lambda n: n * held <= HELD), 1)
    grid_m, grid_n, _ = schedule.warp_grid
    band = grid_m * schedule.warp_tile[0] * _row_of_warps(schedule) * SUM_BYTES  # a warp tile of every wave
    room = max(_staged(signature, schedule), WAVE_LDS_BYTES * grid_m * grid_n)
    if band > room and schedule.warp_tile[:2] == (32, 32):  # 4 KB a wave; half of the sums are half of the rows
        return Turn(1, 1, 2)
    n = _largest(along_n, lambda n: n * band <= room)
    return Turn(_largest(along_m, lambda m: m * n * band <= room), n, 1)


def lds_bytes(signature: Multiplied, schedule: Tiled) -> int:
    """LDS of one block: staging of A and B, or the store's exchange where that is larger."""
    staged = _staged(signature, schedule)
    exchange = 0
    if schedule.store == "cshuffle":
        exchanged = turn(signature, schedule)
        rows = exchanged.m * schedule.warp_grid[0] * schedule.warp_tile[0] // exchanged.parts
        exchange = rows * exchanged.n * _row_of_warps(schedule) * SUM_BYTES
    return max(staged, exchange) + staged * (pipeline_of(schedule).lds_buffers - 1)


def _holders(rows: int) -> int:
    """Lanes among which a warp tile's rows (or columns) are dealt.

    The instruction behind 4x64 and 64x4 multiplies 16 blocks at once, and each wants the four rows (or columns):
    they are there 16 times.
    """
    return rows if rows < 16 else WAVE


def registers(signature: Multiplied, schedule: Tiled) -> int:
    """32-bit registers of a lane for sums, fragments and loads under way; addresses come on top.

    Checked against builds: kernels up to 352 have no spills (up to 510 registers in all), from 368 on they spill.
    Fragments of one-byte elements take twice their size, and results in bf16 (rounded beside the sums) and int32 more.
    """
    m, n, k = schedule.tile
    along_m, along_n, _ = schedule.warp_grid
    size_a, size_b = bytes_of(signature.dtype_a), bytes_of(signature.dtype_b)
    sums = m * n // (WAVE * along_m * along_n)
    of_a, of_b = (
        rows * size * k // _holders(of_tile) // 4
        for rows, size, of_tile in (
            (m // along_m, size_a, schedule.warp_tile[0]),
            (n // along_n, size_b, schedule.warp_tile[1]),
        )
    )
    loads = (m * size_a + n * size_b) * k // threads(schedule) // 4
    walking = 16 if schedule.persistent else 0  # where the next tile lies
    pipeline = pipeline_of(schedule)
    if pipeline.packed_b:
        return sums + 2 * of_b + m * size_a * k // threads(schedule) // 4 + walking
    if pipeline.wave_groups > 1:
        # Both waves name the sums and tiles of both, and load alone; one-byte elements want more, as builds show.
        each = 9 if signature.dtype_a.startswith("fp8") else 7 if size_a == 1 else 3
        return 2 * sums + each * (of_a + of_b)
    fragments = (of_a * (1 + (size_a == 1)) + of_b * (1 + (size_b == 1))) * pipeline.lds_buffers
    under_way = loads * (1 if pipeline.prefetch else prefetch_stages(signature, schedule))
    if pipeline.lds_buffers > 1 and sums >= ACCUMULATORS:  # every accumulator is taken: addresses of two buffers
        under_way += 16
    return sums + fragments + under_way + walking + (32 if signature.dtype_c in ("bf16", "int32") else 0)


def uncovered(lanes: int, rows: int, columns: int, width: int, groups: int = 1) -> str:
    """Why a block of rows x columns cannot be dealt to the lanes in whole accesses; empty means it can."""
    if columns % width:
        return f"rows of {columns} are not whole accesses of {width}"
    width = max(1, min(width, rows * columns // lanes))
    across = columns // width
    if across > WAVE or WAVE % across:
        return f"a row of {columns} takes {across} lanes at {width} elements each, which does not divide a wave of 64"
    at_once = WAVE // across * max(1, lanes // WAVE // groups)  # fewer waves than groups are another rule's to refuse
    if rows % at_once:
        return f"{rows} rows are not whole turns of the {at_once} rows the lanes cover at once"
    return ""


def transposed(signature: Multiplied, schedule: Tiled) -> Iterator[tuple[str, int, int]]:
    """Element type, vectors and elements of each that a lane turns in registers: of operands not contiguous along k.

    Where the arch turns what it reads from LDS (gfx950) no lane does.
    """
    m, n, k = schedule.tile
    groups = pipeline_of(schedule).wave_groups
    for dtype, contiguous, extent, width in (
        (signature.dtype_a, signature.layout[0] == "r", m, width_a(signature, schedule)),
        (signature.dtype_b, signature.layout[1] == "c", n, width_b(signature, schedule)),
    ):
        if not contiguous:
            at_once = max(1, WAVE * width // extent * (threads(schedule) // WAVE // groups))  # 0: other rules refuse it
            yield dtype, k // at_once, width


def turning(signature: Multiplied, schedule: Tiled) -> int:
    """Registers of a lane for turning operands that lie across k, beside `registers`; as builds show.

    Two-byte elements take a copy; one-byte ones are taken apart, and fp32 only gets other names.
    """
    m, n, k = schedule.tile
    total = 0
    for transposed, extent, dtype in (
        (signature.layout[0] == "c", m, signature.dtype_a),
        (signature.layout[1] == "r", n, signature.dtype_b),
    ):
        size = bytes_of(dtype)
        total += transposed * extent * k * size // threads(schedule) // 4 * {1: 5, 2: 1}.get(size, 0)
    return total


def prefetch_stages(signature: Multiplied, schedule: Tiled) -> int:
    """K tiles under way before the first is used; it decides which tails exist."""
    fixed = pipeline_of(schedule).prefetch
    if fixed:
        return fixed
    blocks = max(1, 4 * WAVE // threads(schedule))
    m, n, k = schedule.tile
    stage = (m * bytes_of(signature.dtype_a) + n * bytes_of(signature.dtype_b)) * k
    return min(8, max(2, -(-(IN_FLIGHT_BYTES // blocks) // stage)))


def loops(schedule: Tiled, k: int) -> int:
    """Turns of the K loop of one block."""
    return -(-k // (schedule.tile[2] * schedule.split_k))


def least_loops(schedule: Tiled) -> int:
    return pipeline_of(schedule).least_loops
