"""GEMM on NVIDIA GPUs over our own tile headers: what is legal, and what a legal kernel was not made for.

    tma_ws   sm_90a: the copy engine feeds wgmma, warp-specialised, persistent; `cooperative` or `pingpong`, each
             also with `_turned` (rows of the problem along wgmma's narrow side, for few rows), `_stream_k` (the k
             steps of all tiles are shared out evenly) or `_split_k` (tiles are made in parts of k); sums that change
             hands are added in a fixed order; operands the copy engine cannot read are copied first
    multistage  sm_80 and up: stages filled by cp.async feed mma.sync (exact fp32: multiply-adds); any size, and any
             alignment with a `vector` of one element; `split_k` as in tma_ws
    skinny   few rows (`rows`) or few columns (`columns`) against a large k-contiguous matrix, at the speed of memory
    generic  the floor: any element types, strides and alignment

In tma_ws a warpgroup of four warps counts as one warp: it is what one wgmma instruction belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.gemm import nvidia_multistage as stages
from tilewright.ops.gemm.nvidia_schedules import (
    K_BYTES,
    SKINNY_LINES,
    generic_schedule,
    most_stages,
    schedules,
    shared_bytes,
    tma_view,
)
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import GemmSchedule, GemmSignature, Shape

__all__ = [
    "RULES",
    "generic_schedule",
    "limits",
    "pack_format",
    "pad_grain",
    "schedules",
    "signature_rules",
]

PIPELINES = ("tma_ws", "multistage", "skinny", "generic")
SCHEDULERS = {
    "tma_ws": tuple(
        group + turned + dealt
        for dealt in ("", "_stream_k", "_split_k")
        for turned in ("", "_turned")
        for group in ("cooperative", "pingpong")
    ),
    "multistage": ("default", "split_k"),
    "skinny": ("rows", "columns"),
    "generic": ("default",),
}
FLOATS = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")
INT_OUTPUTS = ("int32", "int8", "fp32")
TENSOR_INPUTS = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "tf32")
# Columns of the wgmma shapes the headers spell out.
WGMMA_COLUMNS = (8, 16, 24, 32, *range(48, 257, 16))
MAX_ACCUMULATORS = 168  # of the 232 registers a multiplying thread has
MAX_STAGES = 16  # each has two barriers of 8 bytes in 256
MAX_CLUSTER = 8  # what every Hopper GPU can place
SKINNY_MAX = 32  # rows of A (or columns of B) a skinny kernel may hold
MAX_SIZE = 1 << 31


def _x(value: Shape) -> str:
    return "x".join(map(str, value))


def signature_rules(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Which dtypes go together."""
    a, b, c, d = signature.dtype_a, signature.dtype_b, signature.dtype_c, signature.dtype_d
    if signature.variant == "preshuffle" and (a != b or a not in TENSOR_INPUTS or "wgmma" not in arch.features):
        yield Violation(
            "nv-preshuffle",
            f"B is packed for wgmma, which does not multiply {a} by {b} on {arch.name}",
            f"give b unpacked, or use one of {', '.join(TENSOR_INPUTS)} for both on sm_90a",
        )
    if a == "int8" or b == "int8":
        if a != b:
            yield Violation("dtype-mix", f"{a} times {b} is not supported", "int8 goes with int8 only")
        outputs: tuple[str, ...] = INT_OUTPUTS
    else:
        for field, value in (("dtype_a", a), ("dtype_b", b)):
            if value not in FLOATS:
                remedy = f"use {', '.join(FLOATS)} or int8"
                yield Violation("dtype-mix", f"{field} {value} is not an input type", remedy)
        if "tf32" in (a, b) and a != b:
            yield Violation("dtype-mix", f"{a} times {b} is not supported", "tf32 goes with tf32 only")
        outputs = FLOAT_OUTPUTS
    if c not in outputs:
        yield Violation("dtype-output", f"{a} times {b} cannot give {c}", f"use {', '.join(outputs)}")
    allowed = (c,) if c in ("int32", "int8", "fp32") else (c, "fp32")
    if signature.num_d and d not in allowed:
        yield Violation("dtype-d", f"D tensors of {d} do not go with an output of {c}", f"use {' or '.join(allowed)}")


def _signature(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _names(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    pipeline = schedule.pipeline
    if pipeline not in PIPELINES:
        yield Violation("nv-pipeline", f"there is no pipeline {pipeline!r}", f"use {', '.join(PIPELINES)}")
        return
    if pipeline != "tma_ws" and signature.variant == "preshuffle":
        yield Violation("nv-packed", f"{pipeline} reads B as it is, not packed", "use tma_ws, or give b unpacked")
    if pipeline == "tma_ws" and not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"tma_ws needs wgmma and TMA, which {arch.name} has not", "use target sm_90a")
    known = SCHEDULERS[pipeline]
    if schedule.scheduler not in known:
        yield Violation(
            "nv-scheduler", f"{pipeline} has no scheduler {schedule.scheduler!r}", f"use {', '.join(known)}"
        )
    stores = ("tma", "direct") if pipeline == "tma_ws" else ("direct",)
    if schedule.store not in stores:
        yield Violation("nv-store", f"{pipeline} has no store {schedule.store!r}", f"use {' or '.join(stores)}")
    for field, value, expected in (
        ("persistent", schedule.persistent, pipeline == "tma_ws"),
        ("unroll", schedule.unroll, 1),
        ("split_k", schedule.split_k, 1),
        ("vector", schedule.vector, schedule.vector if pipeline == "multistage" else (0, 0, 0)),
        ("pad", schedule.pad, (True, True, True)),
    ):
        if value != expected:
            more = " (k is split by the stream_k and split_k schedulers)" if field == "split_k" else ""
            yield Violation("nv-field", f"{field} {value!r}: {pipeline} fixes it{more}", f"use {expected!r}")
    if pipeline != "tma_ws":
        for field, value, plain in (("prefetch", schedule.prefetch, 0), ("cluster", schedule.cluster, (1, 1, 1))):
            if value != plain and (pipeline, field) != ("multistage", "prefetch"):
                yield Violation("nv-field", f"{field} {value!r}: {pipeline} fixes it", f"use {plain!r}")


def _tma_ws(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline != "tma_ws":
        return
    a, b = signature.dtype_a, signature.dtype_b
    if a != b or a not in TENSOR_INPUTS:
        yield Violation(
            "nv-inputs", f"wgmma does not multiply {a} by {b}", f"use one of {', '.join(TENSOR_INPUTS)} for both"
        )
        return
    size = DTYPES[a].bytes
    view = tma_view(schedule)
    field, side = ("tile_m", "tile_n") if view.turned else ("tile_n", "tile_m")
    packed = signature.variant == "preshuffle"
    if size != 2 and signature.layout[: 1 if packed else 2] != ("r" if packed else "rc"):
        yield Violation(
            "nv-along-k", f"wgmma reads {a} along k only, and the layout is {signature.layout}", "use layout rcr"
        )
    if view.columns not in WGMMA_COLUMNS:
        nearest = min(WGMMA_COLUMNS, key=lambda one: abs(one - view.columns))
        yield Violation("nv-columns", f"{field} {view.columns} is not one wgmma wide", f"use {nearest}")
    for what, value, expected in (
        ("warp tile", schedule.warp_tile, (*view.warp_tile, 32 // size)),
        ("warp grid", schedule.warp_grid, view.warp_grid),
    ):
        if value != expected:
            yield Violation(
                "nv-warp",
                f"{what} {_x(value)}, but {schedule.scheduler} warpgroups multiply {_x(expected)}",
                f"use {_x(expected)}",
            )
    if schedule.tile[2] * size != K_BYTES:
        yield Violation(
            "nv-tile-k", f"tile_k {schedule.tile[2]} is not {K_BYTES} bytes of {a}", f"use {K_BYTES // size}"
        )
    if view.rows % (64 * view.groups) or view.rows > 256:
        yield Violation(
            "nv-tile-m",
            f"{side} {view.rows} with {schedule.scheduler}",
            f"use a multiple of {64 * view.groups} to 256",
        )
    if schedule.store == "tma" and (view.columns % 16 or view.turned or DTYPES[signature.dtype_c].bytes != 2):
        yield Violation(
            "nv-tma-store",
            f"the copy engine stores 16 columns of two-byte results, not {field} {view.columns} of {signature.dtype_c}"
            + (" turned" if view.turned else ""),
            "use the direct store",
        )
    yield from _cluster(signature, schedule)
    yield from _resources(signature, schedule, arch)


def _cluster(signature: GemmSignature, schedule: GemmSchedule) -> Iterator[Violation]:
    """Blocks of a cluster's row fetch parts of A for each other, those of a column parts of B."""
    along_m, along_n, along_k = schedule.cluster
    if along_k != 1 or along_m * along_n > MAX_CLUSTER:
        yield Violation(
            "nv-cluster", f"cluster {_x(schedule.cluster)}", f"use at most {MAX_CLUSTER} blocks along m and n"
        )
        return
    for what, line, parts, contiguous in (
        ("A", schedule.tile[0], along_n, signature.layout[0] == "r"),
        ("B", schedule.tile[1], along_m, signature.layout[1] == "c" or signature.variant == "preshuffle"),
    ):
        grain = 8 if contiguous else 64
        if line % parts or line // parts % grain:
            yield Violation(
                "nv-cluster-part",
                f"{line} lines of {what} in {parts} part(s) are not multiples of {grain}",
                f"use a cluster or tile that leaves multiples of {grain}",
            )


def _resources(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    need = tma_view(schedule).accumulators
    if need > MAX_ACCUMULATORS:
        yield Violation(
            "nv-registers",
            f"tile {_x(schedule.tile)} keeps {need} sums a thread, over {MAX_ACCUMULATORS}",
            "use a smaller tile",
        )
    if not 2 <= schedule.prefetch <= MAX_STAGES:
        yield Violation("nv-stages", f"{schedule.prefetch} stages", f"use 2 to {MAX_STAGES} (field prefetch)")
    shared = shared_bytes(schedule)
    if shared > arch.scratch_bytes:
        most = most_stages(schedule, arch.scratch_bytes)
        yield Violation(
            "nv-shared-memory",
            f"{schedule.prefetch} stages of {_x(schedule.tile)} take {shared} bytes of shared memory, "
            f"{arch.name} has {arch.scratch_bytes}",
            f"use {most} stages" if most >= 2 else "use a smaller tile",
        )


MULTISTAGE_STAGES = 8
MULTISTAGE_SIZE = 1 << 29  # bytes of a row are counted in 32 bits


def _multistage(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline != "multistage":
        return
    a, b = signature.dtype_a, signature.dtype_b
    if not (a == b or (a in stages.FP8 and b in stages.FP8)):
        yield Violation("nv-inputs", f"mma.sync does not multiply {a} by {b}", "use one type for both, or two of fp8")
        return
    if schedule.scheduler == "split_k" and signature.dtype_acc != "fp32":
        yield Violation("nv-split-sums", "parts of k are added as fp32, which int32 sums do not fit", "use default")
    size, (m, n, k), (along_m, along_n, along_k) = DTYPES[a].bytes, schedule.tile, schedule.warp_grid
    expected = stages.warp_tile(a)
    if schedule.warp_tile != expected or along_k != 1:
        yield Violation(
            "nv-warp",
            f"warp tile {_x(schedule.warp_tile)} of a warp grid {_x(schedule.warp_grid)}",
            f"use warp tile {_x(expected)}, and warps along m and n only",
        )
        return
    if along_m * along_n > 16:
        yield Violation("nv-warps", f"{along_m * along_n} warps in a block", "use at most 16")
    if k * size not in (64, 128):
        yield Violation("nv-tile-k", f"tile_k {k} is not 64 or 128 bytes of {a}", f"use {64 // size} or {128 // size}")
        return
    if m % (along_m * expected[0]) or n % (along_n * stages.UNIT_COLUMNS):
        yield Violation(
            "nv-warp-part",
            f"tile {_x(schedule.tile)} over {along_m}x{along_n} warps is not whole {expected[0]}x{stages.UNIT_COLUMNS}",
            "use a tile that each warp gets whole units of",
        )
        return
    yield from _multistage_copies(signature, schedule)
    sums = m // along_m * (n // along_n) // 32
    most = stages.most_sums(signature, min(schedule.vector[:2]))
    if sums > most:
        yield Violation(
            "nv-registers",
            f"tile {_x(schedule.tile)} keeps {sums} sums a thread, over {most}",
            "use more warps or a smaller tile",
        )
    if not 2 <= schedule.prefetch <= MULTISTAGE_STAGES:
        yield Violation("nv-stages", f"{schedule.prefetch} stages", f"use 2 to {MULTISTAGE_STAGES} (field prefetch)")
    shared = stages.shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        yield Violation(
            "nv-shared-memory",
            f"{schedule.prefetch} stages of {_x(schedule.tile)} take {shared} bytes of shared memory, "
            f"{arch.name} has {arch.scratch_bytes}",
            "use fewer stages or a smaller tile",
        )


def _multistage_copies(signature: GemmSignature, schedule: GemmSchedule) -> Iterator[Violation]:
    """What `vector` may say, and that the pieces of a row are dealt out evenly."""
    m, n, k = schedule.tile
    threads = 32 * schedule.warp_grid[0] * schedule.warp_grid[1]
    for what, dtype, along_k, lines, vector in (
        ("A", signature.dtype_a, signature.layout[0] == "r", m, schedule.vector[0]),
        ("B", signature.dtype_b, signature.layout[1] == "c", n, schedule.vector[1]),
    ):
        length = k if along_k else lines
        size = DTYPES[dtype].bytes
        if vector != 1 and vector * size not in (4, 8, 16):
            yield Violation(
                "nv-vector",
                f"{vector} elements of {what} at a time are {vector * size} bytes",
                f"use {16 // size}, {8 // size}, {4 // size}, or 1 for any alignment",
            )
            continue
        through = stages.settled(
            dtype, (signature.layout[0] == "r") if what == "A" else signature.layout[1] == "c", vector
        )
        pieces = length * size // (16 if through else vector * size)
        if pieces == 0 or threads % pieces:
            yield Violation(
                "nv-copies",
                f"{threads} threads copy rows of {what} of {length * size} bytes in {pieces} pieces",
                "use a power of two of warps and tile sizes, and as many threads as a row has pieces",
            )
    if schedule.vector[2]:
        yield Violation("nv-field", f"vector {schedule.vector!r}: E is written element by element", "use 0 for C")


def _skinny(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline != "skinny":
        return
    if signature.dtype_a != signature.dtype_b or signature.dtype_a not in ("bf16", "fp16"):
        yield Violation(
            "nv-inputs",
            f"the skinny pipeline multiplies bf16 or fp16, not {signature.dtype_a} by {signature.dtype_b}",
            "use bf16 or fp16 for both, or another pipeline",
        )
    if signature.layout[:2] != "rc":
        yield Violation(
            "nv-skinny-layout",
            f"the skinny pipeline reads both operands along k, and the layout is {signature.layout}",
            "use layout rcr",
        )
    columns = schedule.scheduler == "columns"
    few, many = (schedule.tile[1], schedule.tile[0]) if columns else schedule.tile[:2]
    warps = schedule.warp_grid[2]
    wanted = (16, 8, 16) if columns else (8, 16, 16)
    if schedule.warp_tile != wanted or schedule.warp_grid[:2] != (1, 1) or warps not in (2, 4, 8, 16):
        yield Violation(
            "nv-skinny-warps",
            f"warp grid {_x(schedule.warp_grid)} of {_x(schedule.warp_tile)}",
            f"use 1x1x2 to 1x1x16 of {_x(wanted)}: the warps share k",
        )
    if few > SKINNY_MAX or few % 8 or many not in (16, 32, 48, 64):
        yield Violation(
            "nv-skinny-tile",
            f"tile {_x(schedule.tile)} with {schedule.scheduler}",
            f"use 8 to {SKINNY_MAX} of the few in steps of 8, and 16 to 64 of the many in steps of 16",
        )
    elif schedule.tile[2] != 64 * warps:
        yield Violation("nv-tile-k", f"tile_k {schedule.tile[2]}, but {warps} warps take 64 each", f"use {64 * warps}")
    static = warps * many * (few + 1) * 4
    if static > 48 * 1024:
        yield Violation(
            "nv-shared-memory",
            f"the sums of {warps} warps take {static} bytes of shared memory, over {48 * 1024}",
            "use fewer warps or a smaller tile",
        )


def _generic(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline != "generic":
        return
    fixed = generic_schedule(signature, arch)
    if (schedule.tile, schedule.warp_tile, schedule.warp_grid) != (fixed.tile, fixed.warp_tile, fixed.warp_grid):
        yield Violation("nv-generic", "the generic pipeline has one tile", f"use tile {_x(fixed.tile)}")


RULES = (_signature, _names, _tma_ws, _multistage, _skinny, _generic)


def _unaligned(stride: int, dtype: str) -> bool:
    return stride * DTYPES[dtype].bytes % 16 != 0


def _multistage_limits(schedule: GemmSchedule, p: GemmProblem) -> Iterator[Violation]:
    largest = max(p.m, p.n, p.k)
    if largest >= MULTISTAGE_SIZE:
        yield Violation("nv-size", f"a size of {largest} is 2^29 or more", "use the generic pipeline")
    if -(-p.m // schedule.tile[0]) * -(-p.n // schedule.tile[1]) * p.batch >= MAX_SIZE:
        yield Violation("nv-size", "2^31 or more tiles", "use the generic pipeline")
    for what, dtype, stride, vector in (
        ("A", p.dtype_a, p.a_stride, schedule.vector[0]),
        ("B", p.dtype_b, p.b_stride, schedule.vector[1]),
    ):
        # What is not aligned to 16 bytes may not be aligned to less: of addresses no more is known here.
        if vector > 1 and (not p.aligned or stride % vector):
            yield Violation(
                "nv-alignment",
                f"{what} is copied {vector * DTYPES[dtype].bytes} bytes at a time, its address or stride is not",
                "align it, or use a multistage kernel with a vector of 1",
            )


def limits(schedule: GemmSchedule, problem: GemmProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the C check of the built kernel says the same."""
    p = problem
    if schedule.pipeline == "generic" or 0 in (p.m, p.n, p.batch):
        return
    if schedule.pipeline == "multistage":
        yield from _multistage_limits(schedule, p)
        return
    if p.k == 0:
        yield Violation(
            "nv-empty-k", f"k is 0, and {schedule.pipeline} has nothing to copy", "use the generic pipeline"
        )
    if max(p.m, p.n, p.k) >= MAX_SIZE:
        yield Violation("nv-size", f"a size of {max(p.m, p.n, p.k)} is 2^31 or more", "use the generic pipeline")
    # tma_ws copies operands it cannot read; what it stores must fit, and so must all that skinny reads.
    tma = schedule.pipeline == "tma_ws"
    wrong = [] if tma else [x for x in "ab" if _unaligned(getattr(p, f"{x}_stride"), getattr(p, f"dtype_{x}"))]
    # The copy engine writes whole 16-byte pieces: a row of E that ends inside one would be written past its end.
    if tma and schedule.store == "tma" and (_unaligned(p.c_stride, p.dtype_c) or _unaligned(p.n, p.dtype_c)):
        wrong.append("e")
    if wrong or (not p.aligned and (not tma or schedule.store == "tma")):
        named = f"the row or leading stride of {', '.join(wrong).upper()}"
        what = named if wrong else "an operand's address or batch stride"
        yield Violation(
            "nv-alignment",
            f"{what} is not a multiple of 16 bytes, which {schedule.pipeline} needs",
            "align it, or use a kernel with the direct store" if tma else "align it, or use tma_ws or generic",
        )
    if schedule.pipeline == "skinny":
        few = p.n if schedule.scheduler == "columns" else p.m
        most = schedule.tile[1] if schedule.scheduler == "columns" else schedule.tile[0]
        if few > most:
            yield Violation(
                "nv-skinny-size", f"{few} {schedule.scheduler} are over the {most} of this kernel", "use tma_ws"
            )
        if p.k % SKINNY_LINES:
            yield Violation("nv-skinny-k", f"k {p.k} is not a multiple of {SKINNY_LINES}", "use tma_ws or generic")
        if p.batch > 65535:
            yield Violation("nv-size", f"a batch of {p.batch} is over 65535", "use tma_ws or generic")
    elif -(-p.m // schedule.tile[0]) * -(-p.n // schedule.tile[1]) * p.batch * -(-p.k // schedule.tile[2]) >= MAX_SIZE:
        yield Violation("nv-size", "2^31 or more steps of tiles along k", "use the generic pipeline")


def pad_grain(schedule: GemmSchedule) -> Shape:
    """Every kernel has edge code, so nothing is ever padded."""
    return (1, 1, 1)


def pack_format(schedule: GemmSchedule) -> tuple[object, ...]:
    """Swizzled atoms of eight columns by 128 bytes of k (pack.h): the same for every tile."""
    return ("atoms", 8, K_BYTES)
