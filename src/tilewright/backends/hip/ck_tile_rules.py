"""Which matrix products CK Tile has on an arch, and which of its instances: what the mid-2025 headers assert, what they
compile into something wrong, and what they do not have at all.

Ops whose kernels are such a product share these rules.  tile is the block's work, warp grid how many waves share it
along m, n, k, warp tile one matrix instruction's shape.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.ck_tile_pipelines import PIPELINES
from tilewright.backends.hip.ck_tile_shape import Multiplied, Tiled, pipeline_of
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation

MAX_SPLIT_K = 64
MAX_TILE = 1 << 16  # elements along an axis; with the least of the others they are more than any LDS
LEAST_BESIDE = 48  # registers for addresses and the like, however few there are
# Offsets inside A and B are 32-bit, and those of a tile that hangs over the end must not come round.
MAX_BYTES = (1 << 31) - (1 << 16)
MAX_THREADS = 1 << 32  # of a launch along an axis


def sizes(value: tuple[int, ...]) -> str:
    """128x64x32, as names and messages say it."""
    return "x".join(map(str, value))


def tile_key(signature: Multiplied) -> str:
    return f"{signature.dtype_a}_{signature.dtype_b}_{signature.dtype_acc}"


def _multiplied(signature: Multiplied, arch: Arch) -> Iterator[Violation]:
    """Whether these headers have a matrix instruction for the inputs."""
    a, b = signature.dtype_a, signature.dtype_b
    served = arch.warp_tiles or {}
    encoding, other = ("fnuz", "") if "fp8-fnuz" in arch.features else ("", "fnuz")
    foreign = [dtype for dtype in (a, b) if dtype.startswith("fp8") and dtype.endswith("fnuz") != bool(encoding)]
    if foreign and {"fp8-fnuz", "fp8-ocp"} & arch.features:
        base = foreign[0].removesuffix("fnuz")
        yield Violation(
            "amd-fp8-encoding",
            f"{arch.name} multiplies fp8 in the {'FNUZ' if encoding else 'OCP'} encoding; {base}{other} is the other",
            f"convert to {base}{encoding}, or use the loops",
        )
    elif tile_key(signature) not in served:
        pairs = sorted({key.removesuffix("_fp32").removesuffix("_int32").replace("_fp8", " x fp8") for key in served})
        software = a.startswith("fp8") and not any(key.startswith("fp8") for key in served)
        yield Violation(
            "amd-dtype-mix",
            f"CK Tile has no matrix instruction for {a} times {b} on {arch.name}"
            + (": it converts every element by itself and multiplies in fp32" if software else ""),
            "convert A and B to fp16, which has every number of fp8, or use the loops"
            if software
            else f"use one of {', '.join(pairs)}, or the loops",
        )
    if "lds-transpose" in arch.features and signature.layout != "rcr" and DTYPES[a].bytes > 2:
        yield Violation(
            "amd-transposed-load",
            f"{arch.name} reads layout {signature.layout} transposed from LDS, and has no such read of {a}",
            "use rcr, or the loops",
        )


def ck_tile_rules(signature: Multiplied, arch: Arch) -> Iterator[Violation]:
    """Which products these headers have on the arch."""
    if "wmma" in arch.features:
        yield Violation(
            "amd-wmma",
            f"{arch.name} multiplies with WMMA, and these CK Tile headers have no WMMA code: "
            "a kernel would compile and never multiply",
            "use the loops, or a CDNA arch such as gfx942",
        )
        return
    if not arch.warp_tiles:
        yield Violation(
            "amd-no-matrix-kernel",
            f"no CK Tile kernel was made for {arch.name}: nothing of it was ever executed",
            "use the loops, or a CDNA arch such as gfx90a",
        )
        return
    yield from _multiplied(signature, arch)


def _pairs(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """Which pipeline goes with what."""
    pipeline = pipeline_of(schedule)
    if schedule.scheduler not in pipeline.schedulers:
        yield Violation(
            "amd-scheduler",
            f"{pipeline.name} has no {schedule.scheduler} scheduler (only mem has interwave)",
            f"use {' or '.join(pipeline.schedulers)}",
        )
    if schedule.persistent and not pipeline.persistent:
        able = ", ".join(known.name for known in PIPELINES.values() if known.persistent)
        yield Violation(
            "amd-persistent",
            f"a persistent block of {pipeline.name}: the wave that stores nothing would run ahead into the next tile",
            f"use {able}, or persistent false",
        )
    if schedule.split_k > MAX_SPLIT_K:
        yield Violation("amd-split-k", f"split_k {schedule.split_k} is over {MAX_SPLIT_K}", f"use 1 to {MAX_SPLIT_K}")


def _store_width(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
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


def _shapes(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    if schedule.warp_grid not in arch.warp_grids:
        grids = ", ".join(sizes(grid) for grid in arch.warp_grids)
        yield Violation(
            "amd-warp-grid", f"warp grid {sizes(schedule.warp_grid)} is not one of {arch.name}'s", f"use {grids}"
        )
    pipeline = pipeline_of(schedule)
    in_turn = pipeline.wave_groups > 1
    if in_turn != (schedule.warp_grid[2] > 1) or schedule.warp_grid[2] > 2:
        yield Violation(
            "amd-warp-grid-k",
            f"{schedule.pipeline} with warp grid {sizes(schedule.warp_grid)}: compv5 is two waves that take turns "
            "along k, every other pipeline has one",
            "use 1x1x2 for compv5, a grid with k 1 otherwise",
        )
    elif in_turn and schedule.warp_grid != (1, 1, 2):
        message = f"{pipeline.name} with warp grid {sizes(schedule.warp_grid)}: it is two waves"
        yield Violation("amd-warp-grid-k", message, "use 1x1x2")
    tiles = (arch.warp_tiles or {}).get(tile_key(signature), ())
    if tiles and schedule.warp_tile not in tiles:
        yield Violation(
            "amd-warp-tile",
            f"warp tile {sizes(schedule.warp_tile)} is no matrix instruction for {signature.dtype_a} on {arch.name}",
            f"use {', '.join(sizes(tile) for tile in tiles)}",
        )
    least, step = pipeline.least_tile, pipeline.tile_step
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


def is_whole(schedule: Tiled) -> bool:
    """Whether the arithmetic of the rules below means anything: whole repeats, of which a person could count."""
    return max(schedule.tile) <= MAX_TILE and all(
        schedule.tile[i] % (schedule.warp_grid[i] * schedule.warp_tile[i]) == 0 for i in range(3)
    )


def _wave_registers(schedule: Tiled, arch: Arch) -> tuple[int, int, int]:
    """Waves of a block, registers each has a lane, and how many of them may hold what is counted.

    The waves of a block are on the SIMDs at once and share their registers.
    """
    waves = -(-shape.threads(schedule) // arch.warp_size)
    own = min(
        arch.vector_registers + arch.accumulator_registers, arch.simd_registers // -(-waves // max(1, arch.simds))
    )
    return waves, own, own - max(own * 5 // 16, LEAST_BESIDE)


def register_room(schedule: Tiled, arch: Arch) -> int:
    """Registers of a lane above which kernels spill, addresses and the like left aside."""
    return _wave_registers(schedule, arch)[2]


def _resources(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    yield from _wide_fragments(signature, schedule, arch)  # also where two waves in turn have one warp tile along k
    if not is_whole(schedule) or not arch.accumulator_registers:
        return
    pipeline = pipeline_of(schedule)
    instead = f", or {pipeline.smaller}" if pipeline.smaller else ""
    need = shape.lds_bytes(signature, schedule)
    if need > arch.scratch_bytes:
        why = f" ({pipeline.lds_reason})" if pipeline.lds_reason else ""
        yield Violation(
            "amd-lds",
            f"tile {sizes(schedule.tile)} with {schedule.pipeline} needs {need} bytes of LDS{why}, "
            f"{arch.name} has {arch.scratch_bytes}",
            f"use a smaller tile{instead}",
        )
    held = shape.registers(signature, schedule)
    waves, own, most = _wave_registers(schedule, arch)
    if "lds-transpose" not in arch.features:  # not all fragments are there while operands are transposed
        held = max(held, held + shape.turning(signature, schedule) - own * 3 // 32)
    if held > most:
        few = f" (a block of {waves} waves leaves each {own})" if own < arch.simd_registers else ""
        yield Violation(
            "amd-registers",
            f"tile {sizes(schedule.tile)} with {schedule.pipeline} on warp grid {sizes(schedule.warp_grid)} "
            f"wants {held} registers of a lane; over {most} it spills{few}",
            f"use a smaller tile or {'fewer' if few else 'more'} waves{instead}",
        )
    yield from _kept_in_memory(signature, schedule, arch)


def _wide_fragments(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """Not kept in registers either, whether or not the tile is whole warp tiles of both waves."""
    _, n, k = schedule.warp_tile
    wide = n * k * shape.bytes_of(signature.dtype_a) // shape.WAVE >= shape.NATIVE_BYTES
    if wide and pipeline_of(schedule).wave_groups > 1 and "lds-transpose" in arch.features:
        yield Violation(
            "amd-compv5-fragments",
            f"{schedule.pipeline} on {arch.name} with warp tiles {sizes(schedule.warp_tile)} of {signature.dtype_a}: "
            "fragments of 16 bytes, of which both waves have their own, go through memory",
            "use a warp tile with a shorter k, or another pipeline",
        )


def _kept_in_memory(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """Arrays of a lane that the compiler does not keep in registers, however many are left."""
    name = schedule.pipeline
    if pipeline_of(schedule).wave_groups == 1:
        return
    _, n, k = schedule.warp_tile
    repeat = shape.repeat(schedule)
    held = repeat[1] * repeat[2] * n * k * shape.bytes_of(signature.dtype_b) // shape.WAVE
    if held < shape.NATIVE_BYTES:
        yield Violation(
            "amd-compv5-fragments",
            f"{name} with {held} bytes of B for each lane of a wave: under {shape.NATIVE_BYTES} they go through memory",
            f"use tile_k {schedule.tile[2] * shape.NATIVE_BYTES // max(1, held)}, or another pipeline",
        )


def _dealt(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """Tiles must be dealt to the lanes in whole accesses."""
    pipeline = pipeline_of(schedule)
    if not is_whole(schedule) or pipeline.packed_b:
        return
    m, n, k = schedule.tile
    lanes = shape.threads(schedule)
    rows_a, columns_a = (m, k) if signature.layout[0] == "r" else (k, m)
    rows_b, columns_b = (n, k) if signature.layout[1] == "c" else (k, n)
    for what, rows, columns, width in (
        ("A", rows_a, columns_a, shape.width_a(signature, schedule)),
        ("B", rows_b, columns_b, shape.width_b(signature, schedule)),
    ):
        why = shape.uncovered(lanes, rows, columns, width, pipeline.wave_groups)
        if why:
            yield Violation("amd-tile-vector", f"the tile of {what} ({rows}x{columns}): {why}", "use powers of two")


def _pipelines(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    pipeline = pipeline_of(schedule)
    if pipeline.wave_groups > 1 and signature.layout != "rcr":
        yield Violation(
            "amd-compv5-layout",
            f"{pipeline.name} with layout {signature.layout}: its second wave starts one tile along the wrong axis",
            "use rcr, or another pipeline",
        )
    if pipeline.reads_b_as_a and signature.dtype_a != signature.dtype_b:
        yield Violation(
            "amd-mixed-pipeline",
            f"{pipeline.name} reads B as {signature.dtype_a}, not {signature.dtype_b}",
            "use compv4 for mixed inputs",
        )
    if "lds-transpose" in arch.features and signature.layout != "rcr":
        yield from _transposed_loads(signature, schedule, arch)


def _transposed_loads(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """gfx950 turns a column-major A or row-major B while reading LDS, 8 bytes a lane at a time."""
    pipeline = pipeline_of(schedule)
    size = shape.bytes_of(signature.dtype_a)
    m, n, k = schedule.warp_tile
    held = n * k // shape.WAVE
    accesses, rest = divmod(held * size, 8)
    double = size == 2 and (m, n, k) in ((32, 32, 16), (16, 16, 32))
    quad = size == 1 and (m, n, k) == (32, 32, 64) and pipeline.reads_quads
    if rest or not (accesses == 1 or (accesses == 2 and double) or (accesses == 4 and quad)):
        yield Violation(
            "amd-transposed-load",
            f"{arch.name} reads layout {signature.layout} transposed, and warp tile {sizes((m, n, k))} "
            f"of {signature.dtype_a} has no form for it with {schedule.pipeline}",
            "use another warp tile, or rcr",
        )
    elif pipeline.no_transposed_read:
        yield Violation("amd-transposed-load", *pipeline.no_transposed_read)


_INSTANCE = (_pairs, _store_width, _shapes, _resources, _dealt, _pipelines)


def instance_rules(signature: Multiplied, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """Which instances of CK Tile are legal; where it has nothing there is one reason, and no schedule fixes it."""
    if "wmma" in arch.features or not arch.warp_tiles:
        return
    for rule in _INSTANCE:
        yield from rule(signature, schedule, arch)
