"""GEMM on AMD GPUs: what is legal, and what a legal kernel was not made for.

CK Tile's templates multiply with matrix instructions on CDNA.  Under them, and on every GPU, are the plain loops that
CUDA has too, which take any element types, strides and alignment.

tile is the block's work, warp grid how many waves share it along m, n, k, warp tile one matrix
instruction's shape.  The rules follow the mid-2025 headers: what they assert, what they compile into
something wrong, and what they do not have at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.ops.base import Violation
from tilewright.ops.gemm import amd_shape as shape
from tilewright.ops.gemm.amd_schedules import generic_schedule, schedules
from tilewright.ops.gemm.amd_signature import ck_tile_rules, signature_rules, tile_key
from tilewright.ops.gemm.copies import whole_rows
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import AmdSchedule, CkTileSchedule, GpuLoopsSchedule, Shape, sizes
from tilewright.ops.gemm.spec import GemmSignature

__all__ = [
    "RULES",
    "copied_sizes",
    "generic_schedule",
    "grains",
    "limits",
    "pack_format",
    "schedules",
    "signature_rules",
]

USUAL = ("fp16", "rcr")  # datatype and layout where nobody says, as users of CK Tile expect
PIPELINES = CkTileSchedule.pipelines
STORES = CkTileSchedule.words["store"]
PERSISTENT = ("compv3", "compv4", "mem", "preshuffle")
SCHEDULERS = {"mem": ("intrawave", "interwave"), "preshuffle": ("default",)}
MAX_SPLIT_K = 64
MAX_TILE = 1 << 16  # elements along an axis; with the least of the others they are more than any LDS
LEAST_BESIDE = 48  # registers for addresses and the like, however few there are
# Offsets inside A and B are 32-bit, and those of a tile that hangs over the end must not come round.
MAX_BYTES = (1 << 31) - (1 << 16)
MAX_THREADS = 1 << 32  # of a launch along an axis


def _signature(signature: GemmSignature, schedule: AmdSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)
    if isinstance(schedule, GpuLoopsSchedule):
        if signature.variant == "preshuffle":
            yield Violation("amd-packed", "the loops read B as it is, not packed", "give b unpacked")
    elif signature.variant != "preshuffle":  # there they are rules of the signature
        yield from ck_tile_rules(signature, arch)


def _pairs(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    """Which pipeline goes with what."""
    pipeline = schedule.pipeline
    known = SCHEDULERS.get(pipeline, ("intrawave",))
    if schedule.scheduler not in known:
        yield Violation(
            "amd-scheduler",
            f"{pipeline} has no {schedule.scheduler} scheduler (only mem has interwave)",
            f"use {' or '.join(known)}",
        )
    if schedule.persistent and pipeline not in PERSISTENT:
        yield Violation(
            "amd-persistent",
            f"a persistent block of {pipeline}: the wave that stores nothing would run ahead into the next tile",
            f"use {', '.join(PERSISTENT)}, or persistent false",
        )
    if (signature.variant == "preshuffle") != (pipeline == "preshuffle"):
        yield Violation(
            "amd-preshuffle",
            f"variant {signature.variant} with pipeline {pipeline}",
            "variant and pipeline preshuffle go together",
        )


def _store_width(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    width = schedule.store_width
    if not width:
        return
    native = shape.NATIVE_BYTES // shape.bytes_of(signature.dtype_c)
    if schedule.store != "cshuffle" or width not in (1, 2, 4, 8) or width >= native:
        yield Violation(
            "amd-store-width",
            f"a store width of {width} with the {schedule.store} store",
            f"use the cshuffle store with a power of two below {native}, or 0",
        )


def _shapes(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.warp_grid not in arch.warp_grids:
        grids = ", ".join(sizes(one) for one in arch.warp_grids)
        yield Violation(
            "amd-warp-grid", f"warp grid {sizes(schedule.warp_grid)} is not one of {arch.name}'s", f"use {grids}"
        )
    if (schedule.pipeline == "compv5") != (schedule.warp_grid[2] > 1) or schedule.warp_grid[2] > 2:
        yield Violation(
            "amd-warp-grid-k",
            f"{schedule.pipeline} with warp grid {sizes(schedule.warp_grid)}: compv5 is two waves that take turns "
            "along k, every other pipeline has one",
            "use 1x1x2 for compv5, a grid with k 1 otherwise",
        )
    elif schedule.pipeline == "compv5" and schedule.warp_grid != (1, 1, 2):
        yield Violation(
            "amd-warp-grid-k", f"compv5 with warp grid {sizes(schedule.warp_grid)}: it is two waves", "use 1x1x2"
        )
    tiles = (arch.warp_tiles or {}).get(tile_key(signature), ())
    if tiles and schedule.warp_tile not in tiles:
        yield Violation(
            "amd-warp-tile",
            f"warp tile {sizes(schedule.warp_tile)} is no matrix instruction for {signature.dtype_a} on {arch.name}",
            f"use {', '.join(sizes(one) for one in tiles)}",
        )
    preshuffle = schedule.pipeline == "preshuffle"
    least, step = ((64, 64, 32), (32, 32, 16)) if preshuffle else ((16, 16, 8), (16, 16, 8))
    for i, axis in enumerate("mnk"):
        if schedule.tile[i] < least[i] or schedule.tile[i] % step[i]:
            yield Violation(
                "amd-tile-size",
                f"tile_{axis} {schedule.tile[i]} is not a multiple of {step[i]} from {least[i]} up",
                f"use {max(least[i], -(-schedule.tile[i] // step[i]) * step[i])}",
            )
        elif schedule.tile[i] > MAX_TILE:
            yield Violation(
                "amd-tile-size",
                f"tile_{axis} {schedule.tile[i]} is over {MAX_TILE}: not a slice of it fits into LDS",
                "use 256 or less",
            )
    k = schedule.tile[2]
    if k & (k - 1):
        yield Violation(
            "amd-tile-k-power",
            f"tile_k {k} is no power of two, which the swizzle of the LDS rows needs",
            f"use {1 << (k.bit_length() - 1)} or {1 << k.bit_length()}",
        )
    lanes = arch.warp_size * schedule.warp_grid[0] * schedule.warp_grid[1] * schedule.warp_grid[2]
    if lanes > arch.max_threads:
        yield Violation(
            "amd-threads",
            f"warp grid {sizes(schedule.warp_grid)} makes blocks of {lanes} threads, over {arch.max_threads}",
            f"use at most {arch.max_threads // arch.warp_size} waves",
        )


def _whole(schedule: CkTileSchedule) -> bool:
    """Whether the arithmetic of the rules below means anything: whole repeats, of which a person could count."""
    return max(schedule.tile) <= MAX_TILE and all(
        schedule.tile[i] % (schedule.warp_grid[i] * schedule.warp_tile[i]) == 0 for i in range(3)
    )


def _resources(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if not _whole(schedule) or not arch.accumulator_registers:
        return
    need = shape.lds_bytes(signature, schedule)
    if need > arch.scratch_bytes:
        why = {"compv4": " (two buffers)", "compv5": " (the sums pass through LDS)"}.get(schedule.pipeline, "")
        yield Violation(
            "amd-lds",
            f"tile {sizes(schedule.tile)} with {schedule.pipeline} needs {need} bytes of LDS{why}, "
            f"{arch.name} has {arch.scratch_bytes}",
            "use a smaller tile" + (", or compv3" if schedule.pipeline == "compv4" else ""),
        )
    held = shape.registers(signature, schedule)
    # The waves of a block are on the SIMDs at once and share their registers.
    waves = -(-shape.threads(schedule) // arch.warp_size)
    own = min(
        arch.vector_registers + arch.accumulator_registers, arch.simd_registers // -(-waves // max(1, arch.simds))
    )
    most = own - max(own * 5 // 16, LEAST_BESIDE)
    if "lds-transpose" not in arch.features:  # not all fragments are there while operands are turned
        held = max(held, held + shape.turning(signature, schedule) - own * 3 // 32)
    if held > most:
        few = f" (a block of {waves} waves leaves each {own})" if own < arch.simd_registers else ""
        yield Violation(
            "amd-registers",
            f"tile {sizes(schedule.tile)} with {schedule.pipeline} on warp grid {sizes(schedule.warp_grid)} "
            f"wants {held} registers of a lane; over {most} it spills{few}",
            ("use a smaller tile or fewer waves" if few else "use a smaller tile or more waves")
            + (", or compv3" if schedule.pipeline == "compv4" else ""),
        )
    yield from _kept_in_memory(signature, schedule, arch)


def _kept_in_memory(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    """Arrays of a lane that the compiler does not keep in registers, however many are left."""
    if schedule.pipeline != "compv5":
        return
    m, n, k = schedule.warp_tile
    repeat = shape.repeat(schedule)
    wide = n * k * shape.bytes_of(signature.dtype_a) // shape.WAVE >= shape.NATIVE_BYTES
    if wide and "lds-transpose" in arch.features:
        yield Violation(
            "amd-compv5-fragments",
            f"compv5 on {arch.name} with warp tiles {sizes((m, n, k))} of {signature.dtype_a}: fragments of 16 bytes, "
            "of which both waves have their own, go through memory",
            "use a warp tile with a shorter k, or another pipeline",
        )
    held = repeat[1] * repeat[2] * n * k * shape.bytes_of(signature.dtype_b) // shape.WAVE
    if held < shape.NATIVE_BYTES:
        yield Violation(
            "amd-compv5-fragments",
            f"compv5 with {held} bytes of B for each lane of a wave: under {shape.NATIVE_BYTES} they go through memory",
            f"use tile_k {schedule.tile[2] * shape.NATIVE_BYTES // max(1, held)}, or another pipeline",
        )


def _dealt(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    """Tiles must be dealt to the lanes in whole accesses."""
    if not _whole(schedule) or schedule.pipeline == "preshuffle":
        return
    m, n, k = schedule.tile
    groups = 2 if schedule.pipeline == "compv5" else 1
    lanes = shape.threads(schedule)
    rows_a, columns_a = (m, k) if signature.layout[0] == "r" else (k, m)
    rows_b, columns_b = (n, k) if signature.layout[1] == "c" else (k, n)
    for what, rows, columns, width in (
        ("A", rows_a, columns_a, shape.width_a(signature, schedule)),
        ("B", rows_b, columns_b, shape.width_b(signature, schedule)),
    ):
        why = shape.uncovered(lanes, rows, columns, width, groups)
        if why:
            yield Violation("amd-tile-vector", f"the tile of {what} ({rows}x{columns}): {why}", "use powers of two")


def _split(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.split_k == 1:
        return
    if schedule.split_k > MAX_SPLIT_K:
        yield Violation("amd-split-k", f"split_k {schedule.split_k} is over {MAX_SPLIT_K}", f"use 1 to {MAX_SPLIT_K}")
    if signature.variant == "preshuffle":
        yield Violation(
            "amd-split-k",
            f"split_k {schedule.split_k} with a packed B, which has no offset for parts",
            "use another variant, or split_k 1",
        )


def _preshuffle(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline != "preshuffle" or not _whole(schedule):
        return
    size = shape.bytes_of(signature.dtype_a)
    m, _, k = schedule.tile
    waves = shape.threads(schedule) // shape.WAVE
    if signature.layout != "rcr":
        yield Violation("amd-preshuffle", f"layout {signature.layout} with a preshuffled B", "use rcr")
    if schedule.store != "cshuffle":
        yield Violation("amd-preshuffle", f"the {schedule.store} store with a preshuffled B", "use cshuffle")
    if schedule.warp_tile[1] not in (16, 32):
        yield Violation(
            "amd-preshuffle",
            f"warp_tile_n {schedule.warp_tile[1]} has no packed order",
            "use a 16- or 32-wide warp tile",
        )
    if schedule.pad[2]:
        yield Violation("amd-preshuffle", "a packed B ends with k: there is no edge code along k", "use pad_k false")
    share = schedule.warp_tile[0] * schedule.warp_tile[2] * size * shape.repeat(schedule)[0] // shape.WAVE
    if share % shape.NATIVE_BYTES:
        yield Violation(
            "amd-preshuffle", f"a lane's share of A is {share} bytes, not a multiple of 16", "use a larger tile_m"
        )
    across = k * size // shape.NATIVE_BYTES
    if across < 1 or shape.WAVE % across:
        yield Violation(
            "amd-preshuffle", f"a row of A takes {across} lanes, which does not divide 64", "use a smaller tile_k"
        )
        return
    if m % (shape.WAVE // across * waves):
        yield Violation(
            "amd-preshuffle",
            f"tile_m {m} is not a multiple of the {shape.WAVE // across * waves} rows of A the lanes load at once",
            "use a larger tile_m or fewer waves",
        )
    loads = m * k // shape.threads(schedule) // (shape.NATIVE_BYTES // size)
    reads = shape.repeat(schedule)[0] * (k // schedule.warp_tile[2])
    if schedule.warp_tile[1] == 16 and reads < loads:
        yield Violation(
            "amd-preshuffle",
            f"{loads} loads of A but {reads} reads from LDS: the schedule of 16-wide warp tiles needs as many reads",
            "use more waves along n",
        )


def _pipelines(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline == "compv5" and signature.layout != "rcr":
        yield Violation(
            "amd-compv5-layout",
            f"compv5 with layout {signature.layout}: its second wave starts one tile along the wrong axis",
            "use rcr, or another pipeline",
        )
    if schedule.pipeline in ("compv3", "mem") and signature.dtype_a != signature.dtype_b:
        yield Violation(
            "amd-mixed-pipeline",
            f"{schedule.pipeline} reads B as {signature.dtype_a}, not {signature.dtype_b}",
            "use compv4 for mixed inputs",
        )
    if "lds-transpose" in arch.features and signature.layout != "rcr":
        yield from _transposed_loads(signature, schedule, arch)


def _transposed_loads(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    """gfx950 turns a column-major A or row-major B while reading LDS, 8 bytes a lane at a time."""
    size = shape.bytes_of(signature.dtype_a)
    m, n, k = schedule.warp_tile
    held = n * k // shape.WAVE
    accesses, rest = divmod(held * size, 8)
    double = size == 2 and (m, n, k) in ((32, 32, 16), (16, 16, 32))
    quad = size == 1 and (m, n, k) == (32, 32, 64) and schedule.pipeline not in ("compv4", "compv5")
    if rest or not (accesses == 1 or (accesses == 2 and double) or (accesses == 4 and quad)):
        yield Violation(
            "amd-transposed-load",
            f"{arch.name} reads layout {signature.layout} transposed, and warp tile {sizes((m, n, k))} "
            f"of {signature.dtype_a} has no form for it with {schedule.pipeline}",
            "use another warp tile, or rcr",
        )
    elif schedule.pipeline == "compv5":
        yield Violation("amd-transposed-load", "compv5 has no transposed read", "use another pipeline, or rcr")
    elif schedule.pipeline == "compv3":
        yield Violation(
            "amd-transposed-load",
            "compv3 with two turns of the k loop stores its second tile turned, and reads it as if it were not",
            "use compv4 or mem, or rcr",
        )


_SCHEDULES = (_pairs, _store_width, _shapes, _resources, _dealt, _split, _preshuffle, _pipelines)


def _schedule(signature: GemmSignature, schedule: AmdSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, GpuLoopsSchedule) or "wmma" in arch.features or not arch.warp_tiles:
        return  # the loops take everything; where CK Tile has nothing there is one reason, and no schedule mends it
    for rule in _SCHEDULES:
        yield from rule(signature, schedule, arch)


RULES = (_signature, _schedule)


def _spans(schedule: CkTileSchedule, problem: GemmProblem) -> Iterator[tuple[str, int]]:
    """Bytes of A and B, with the rows that the last turns of the k loop reach for; all else has 64-bit offsets."""
    turns = -(-problem.k // (schedule.tile[2] * schedule.split_k)) * schedule.tile[2] * schedule.split_k
    a_rows = problem.m if problem.layout[0] == "r" else turns
    b_rows = turns if problem.layout[1] == "r" else problem.n
    yield "A", a_rows * problem.a_stride * shape.bytes_of(problem.dtype_a)
    if problem.preshuffled:
        yield "B", problem.n * problem.k * shape.bytes_of(problem.dtype_b)
    else:
        yield "B", b_rows * problem.b_stride * shape.bytes_of(problem.dtype_b)


def limits(schedule: AmdSchedule, problem: GemmProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's C check says the same."""
    if isinstance(schedule, GpuLoopsSchedule):
        return
    signature = problem.signature
    if not problem.m or not problem.n or not problem.batch:
        return
    for what, extent, stride, width in _contiguous(schedule, problem, signature):
        if width > 1 and not problem.aligned:
            yield Violation(
                "amd-alignment",
                f"an operand's address or batch stride is not a multiple of 16 bytes, and {what} is read {width} "
                "elements at a time",
                "align it, or use a kernel with narrower accesses",
            )
        if extent % width or stride % width:
            yield Violation(
                "amd-alignment",
                f"{what}: its contiguous extent {extent} and stride {stride} must be multiples of {width} elements, "
                "edge code or not",
                f"pad them to multiples of {width}, or use a kernel with narrower accesses",
            )
    for what, span in _spans(schedule, problem):
        if span >= MAX_BYTES:
            yield Violation(
                "amd-operand-size", f"{what} spans {span} bytes, and offsets are 32-bit", "split the problem"
            )
    tiles = -(-problem.m // schedule.tile[0]) * -(-problem.n // schedule.tile[1])
    if tiles * schedule.split_k * shape.threads(schedule) >= MAX_THREADS:
        yield Violation(
            "amd-tiles", f"{tiles} tiles make a launch of 2^32 threads or more", "use a kernel with a larger tile"
        )
    turns, least = shape.loops(schedule, problem.k), shape.least_loops(schedule)
    if turns < least:
        yield Violation(
            "amd-k-loops",
            f"k = {problem.k} gives {turns} turns of the k loop, {schedule.pipeline} needs {least}",
            "use a kernel with a smaller tile_k, or compv3",
        )
    if schedule.pipeline == "preshuffle" and problem.n % schedule.warp_tile[1]:
        yield Violation(
            "amd-preshuffle-columns",
            f"n = {problem.n} is not a multiple of warp_tile_n {schedule.warp_tile[1]}, the columns of a packed panel",
            f"pad n to {-(-problem.n // schedule.warp_tile[1]) * schedule.warp_tile[1]}, or give b unpacked",
        )


def _contiguous(
    schedule: CkTileSchedule, problem: GemmProblem, signature: GemmSignature
) -> Iterator[tuple[str, int, int, int]]:
    """Name, contiguous extent, stride and access width of what is loaded in whole accesses only."""
    yield (
        "A",
        (problem.k if problem.layout[0] == "r" else problem.m),
        problem.a_stride,
        shape.width_a(signature, schedule),
    )
    if not problem.preshuffled:
        yield (
            "B",
            (problem.n if problem.layout[1] == "r" else problem.k),
            problem.b_stride,
            shape.width_b(signature, schedule),
        )


def grains(schedule: AmdSchedule) -> Shape:
    """What each size must be a multiple of: 1 where the kernel has edge code."""
    if isinstance(schedule, GpuLoopsSchedule):
        return (1, 1, 1)
    m, n, k = schedule.tile
    # The preshuffle pipeline takes its k tiles in pairs.
    whole = m, n, k * schedule.split_k * (2 if schedule.pipeline == "preshuffle" else 1)
    m, n, k = (1 if edge else step for edge, step in zip(schedule.pad, whole, strict=True))
    return m, n, k


def copied_sizes(schedule: AmdSchedule, problem: GemmProblem) -> Shape:
    """m, n and k of copies in which the kernel serves the problem: whole accesses, a k long enough."""
    if isinstance(schedule, GpuLoopsSchedule):
        return (problem.m, problem.n, problem.k)
    p, signature = problem, problem.signature
    k, step = p.k, schedule.tile[2] * schedule.split_k
    if shape.loops(schedule, k) < shape.least_loops(schedule):
        k = step * shape.least_loops(schedule)
    return whole_rows(p, k, (1, 1, 1), (shape.width_a(signature, schedule), shape.width_b(signature, schedule), 1))


def pack_format(schedule: AmdSchedule) -> tuple[object, ...]:
    """A packed B is panels of warp_tile_n columns, each in the order the lanes load warp_tile_k of it."""
    return schedule.warp_tile[1:]
