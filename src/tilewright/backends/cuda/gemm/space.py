"""GEMM on NVIDIA GPUs over our own tile headers: what is legal, and what a legal kernel was not made for.

    tma_ws   sm_90a: the copy engine feeds wgmma, warp-specialised, persistent; warpgroups `cooperative` or `pingpong`,
             `turned` for few rows (rows of the problem along wgmma's narrow side), blocks dealt whole `tiles`, the k
             steps of all tiles evenly (`stream_k`), parts of k (`split_k`), or parts of k for the blocks of a cluster
             (`cluster_k`); sums that change hands are added in a fixed order; operands the copy engine cannot read are
             copied first, and those wgmma reads along k only (one- and four-byte types) turned where they do not lie so
    multistage  sm_80 and up: stages filled by cp.async feed mma.sync (exact fp32: multiply-adds); any size, and any
             alignment with a `vector` of one element; `split_k` as in tma_ws, `stream_k` of exact fp32
    skinny   few rows or few columns against a large matrix, at the speed of memory
    loops    the floor: any element types, strides and alignment

In tma_ws a warpgroup of four warps counts as one warp: it is what one wgmma instruction belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.gemm import multistage as stages
from tilewright.backends.cuda.gemm.proposals import (
    K_BYTES,
    LINES,
    SKINNY_LINES,
    by_lines,
    generic_schedule,
    most_stages,
    schedules,
    shared_bytes,
    skinny_bytes,
    tma_view,
)
from tilewright.backends.cuda.gemm.schedules import (
    SCHEDULES,
    MultistageSchedule,
    NvidiaSchedule,
    SkinnySchedule,
    TmaWsSchedule,
)
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.copies import whole_rows
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import Shape, sizes
from tilewright.ops.gemm.spec import GemmSignature

__all__ = [
    "RULES",
    "SCHEDULES",
    "copied_sizes",
    "generic_schedule",
    "grains",
    "limits",
    "pack_format",
    "residency",
    "schedules",
    "signature_rules",
]

PIPELINES = ("tma_ws", "multistage", "skinny", "loops")
FLOATS = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")
INT_OUTPUTS = ("int32", "int8", "fp32")
TENSOR_INPUTS = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "tf32")
# Columns of the wgmma shapes the headers spell out.
WGMMA_COLUMNS = (8, 16, 24, 32, *range(48, 257, 16))
MAX_ACCUMULATORS = {1: 168, 2: 168, 3: 96}  # of the 232 registers a multiplying thread has; of three that share, 152
MAX_STAGES = 16  # each has two barriers of 8 bytes in 256
MAX_CLUSTER = 8  # what every Hopper GPU can place
SKINNY_MAX = 32  # rows of A (or columns of B) a skinny kernel may hold
MAX_SIZE = 1 << 31
PART_GRAIN = 8  # lines or k of a part that a block of a cluster fetches: whole swizzled atoms
LINE_BYTES = 16  # rows of copies are multiples of this: what the copy engine asks for
LOOPS = "the loops pipeline"


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


def _signature(signature: GemmSignature, schedule: NvidiaSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)
    if signature.variant == "preshuffle" and not isinstance(schedule, TmaWsSchedule):
        yield Violation(
            "nv-packed", f"{schedule.pipeline} reads B as it is, not packed", "use tma_ws, or give b unpacked"
        )


def _tma_ws(signature: GemmSignature, schedule: NvidiaSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, TmaWsSchedule):
        return
    if not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"tma_ws needs wgmma and TMA, which {arch.name} has not", "use target sm_90a")
    a, b = signature.dtype_a, signature.dtype_b
    if a != b or a not in TENSOR_INPUTS:
        yield Violation(
            "nv-inputs", f"wgmma does not multiply {a} by {b}", f"use one of {', '.join(TENSOR_INPUTS)} for both"
        )
        return
    size = DTYPES[a].bytes
    view = tma_view(schedule)
    field, side = ("tile_m", "tile_n") if view.turned else ("tile_n", "tile_m")
    if view.columns not in WGMMA_COLUMNS:
        nearest = min(WGMMA_COLUMNS, key=lambda one: abs(one - view.columns))
        yield Violation("nv-columns", f"{field} {view.columns} is not one wgmma wide", f"use {nearest}")
    if schedule.tile[2] * size != K_BYTES:
        yield Violation(
            "nv-tile-k", f"tile_k {schedule.tile[2]} is not {K_BYTES} bytes of {a}", f"use {K_BYTES // size}"
        )
    if view.rows % (64 * view.groups) or view.rows > 256:
        known = "64, 128, 192 or 256" if schedule.grouping == "pingpong" else "128, 192 or 256"
        rule = f"{side} {view.rows} with {schedule.grouping} warpgroups"
        yield Violation("nv-tile-m", rule, f"use {known}")
    if view.groups == 3 and schedule.dealing != "tiles":
        yield Violation(
            "nv-groups", f"{schedule.dealing} of {side} 192, which three warpgroups share", "deal tiles, or use 128"
        )
    if schedule.store == "tma" and (view.columns % 16 or view.turned or DTYPES[signature.dtype_c].bytes != 2):
        yield Violation(
            "nv-tma-store",
            f"the copy engine stores 16 columns of two-byte results, not {field} {view.columns} of {signature.dtype_c}"
            + (" turned" if view.turned else ""),
            "use the direct store",
        )
    yield from _cluster(signature, schedule)
    if schedule.dealing == "cluster_k":
        yield from _cluster_k(signature, schedule)
    yield from _resources(signature, schedule, arch)


def _cluster(signature: GemmSignature, schedule: TmaWsSchedule) -> Iterator[Violation]:
    """Blocks of a cluster's row fetch parts of A for each other, those of a column parts of B."""
    along_m, along_n = schedule.cluster
    turned = DTYPES[signature.dtype_a].bytes != 2  # by a copy, where they do not lie along k
    if along_m * along_n > MAX_CLUSTER:
        yield Violation("nv-cluster", f"cluster {sizes(schedule.cluster)}", f"use at most {MAX_CLUSTER} blocks")
        return
    if schedule.dealing == "cluster_k":  # they share no operand
        along_m = along_n = 1
    for what, line, parts, contiguous in (
        ("A", schedule.tile[0], along_n, turned or signature.layout[0] == "r"),
        ("B", schedule.tile[1], along_m, turned or signature.layout[1] == "c" or signature.variant == "preshuffle"),
    ):
        length, unit = (line, "lines") if contiguous else (LINES, "k")  # of which each block fetches a part
        if length % parts or length // parts % PART_GRAIN:
            yield Violation(
                "nv-cluster-part",
                f"{length} {unit} of {what} in {parts} part(s) are not multiples of {PART_GRAIN}",
                f"use a cluster or tile that leaves multiples of {PART_GRAIN}",
            )


def _cluster_k(signature: GemmSignature, schedule: TmaWsSchedule) -> Iterator[Violation]:
    """Blocks of a cluster share the k of one tile, and its sums lie in their stages in the end."""
    blocks, view = schedule.cluster[0] * schedule.cluster[1], tma_view(schedule)
    if blocks < 2:
        yield Violation("nv-cluster", f"cluster {sizes(schedule.cluster)} to share k", f"use 2 to {MAX_CLUSTER} blocks")
    if schedule.grouping != "cooperative" or schedule.store != "direct":
        yield Violation(
            "nv-cluster-k",
            f"a cluster that shares k is {schedule.grouping} with the {schedule.store} store",
            "use cooperative warpgroups and the direct store",
        )
    if 4 * view.rows * view.columns > schedule.stages * view.stage_bytes(by_lines(signature, schedule)):
        yield Violation(
            "nv-cluster-k",
            f"{schedule.stages} stages have no room for the sums of {sizes(schedule.tile)}",
            "use more stages or a smaller tile",
        )


def _resources(signature: GemmSignature, schedule: TmaWsSchedule, arch: Arch) -> Iterator[Violation]:
    view = tma_view(schedule)
    need, most_sums = view.accumulators, MAX_ACCUMULATORS[view.groups]
    if need > most_sums:
        yield Violation(
            "nv-registers",
            f"tile {sizes(schedule.tile)} keeps {need} sums a thread, over {most_sums}",
            "use a smaller tile",
        )
    if not 2 <= schedule.stages <= MAX_STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use 2 to {MAX_STAGES}")
    shared = shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        most = most_stages(signature, schedule, arch.scratch_bytes)
        yield Violation(
            "nv-shared-memory",
            f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory, "
            f"{arch.name} has {arch.scratch_bytes}",
            f"use {most} stages" if most >= 2 else "use a smaller tile",
        )


MULTISTAGE_STAGES = 8
MULTISTAGE_SIZE = 1 << 29  # bytes of a row are counted in 32 bits


def _multistage(signature: GemmSignature, schedule: NvidiaSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, MultistageSchedule):
        return
    a, b = signature.dtype_a, signature.dtype_b
    if not (a == b or (a in stages.FP8 and b in stages.FP8)):
        yield Violation("nv-inputs", f"mma.sync does not multiply {a} by {b}", "use one type for both, or two of fp8")
        return
    if schedule.dealing == "split_k" and signature.dtype_acc != "fp32":
        yield Violation("nv-split-sums", "parts of k are added as fp32, which int32 sums do not fit", "deal tiles")
    if schedule.dealing == "stream_k" and a != "fp32":
        yield Violation(
            "nv-stream", f"multistage deals stream_k of exact fp32 only, not of {a}", "deal tiles or split_k"
        )
    size, (m, n, k), (along_m, along_n, along_k) = DTYPES[a].bytes, schedule.tile, schedule.warp_grid
    expected = stages.warp_tile(a)
    if schedule.warp_tile != expected or along_k != 1:
        yield Violation(
            "nv-warp",
            f"warp tile {sizes(schedule.warp_tile)} of a warp grid {sizes(schedule.warp_grid)}",
            f"use warp tile {sizes(expected)}, and warps along m and n only",
        )
        return
    if along_m * along_n > 16:
        yield Violation("nv-warps", f"{along_m * along_n} warps in a block", "use at most 16")
    short, long = stages.k_bytes(a)
    if k * size not in (short, long):
        rule = f"tile_k {k} is not {short} or {long} bytes of {a}"
        yield Violation("nv-tile-k", rule, f"use {short // size} or {long // size}")
        return
    if m % (along_m * expected[0]) or n % (along_n * stages.unit_columns(a)):
        yield Violation(
            "nv-warp-part",
            f"tile {sizes(schedule.tile)} over {along_m}x{along_n} warps is not whole units of "
            f"{expected[0]}x{stages.unit_columns(a)}",
            "use a tile that each warp gets whole units of",
        )
        return
    yield from _multistage_copies(signature, schedule)
    sums = m // along_m * (n // along_n) // 32
    most = stages.most_sums(signature, min(schedule.vector))
    if sums > most:
        yield Violation(
            "nv-registers",
            f"tile {sizes(schedule.tile)} keeps {sums} sums a thread, over {most}",
            "use more warps or a smaller tile",
        )
    if not 2 <= schedule.stages <= MULTISTAGE_STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use 2 to {MULTISTAGE_STAGES}")
    shared = stages.shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        yield Violation(
            "nv-shared-memory",
            f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory, "
            f"{arch.name} has {arch.scratch_bytes}",
            "use fewer stages or a smaller tile",
        )


def _multistage_copies(signature: GemmSignature, schedule: MultistageSchedule) -> Iterator[Violation]:
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
        through = stages.settled(dtype, along_k, vector)
        pieces = length * size // (16 if through else vector * size) if not stages.single(dtype, along_k) else 8
        if pieces == 0 or threads % pieces:
            yield Violation(
                "nv-copies",
                f"{threads} threads copy rows of {what} of {length * size} bytes in {pieces} pieces",
                "use a power of two of warps and tile sizes, and as many threads as a row has pieces",
            )


def _skinny(signature: GemmSignature, schedule: NvidiaSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, SkinnySchedule):
        return
    if signature.dtype_a != signature.dtype_b or signature.dtype_a not in ("bf16", "fp16"):
        yield Violation(
            "nv-inputs",
            f"the skinny pipeline multiplies bf16 or fp16, not {signature.dtype_a} by {signature.dtype_b}",
            "use bf16 or fp16 for both, or another pipeline",
        )
    lines_first = signature.layout[0] != "r" if schedule.few == "columns" else signature.layout[1] != "c"
    few, many = (schedule.tile[1], schedule.tile[0]) if schedule.few == "columns" else schedule.tile[:2]
    warps, rest = divmod(schedule.tile[2], 64)
    if rest or warps not in (2, 4, 8, 16):
        yield Violation(
            "nv-tile-k",
            f"tile_k {schedule.tile[2]}: the warps share k, 64 each, and there are 2, 4, 8 or 16",
            "use 128, 256, 512 or 1024",
        )
    if few > SKINNY_MAX or few % 8 or many not in (16, 32, 48, 64):
        yield Violation(
            "nv-skinny-tile",
            f"tile {sizes(schedule.tile)} with few {schedule.few}",
            f"use 8 to {SKINNY_MAX} of the few in steps of 8, and 16 to 64 of the many in steps of 16",
        )
    elif lines_first and many not in (32, 64):
        yield Violation(
            "nv-skinny-layout",
            f"the skinny pipeline reads {many} lines of a large matrix of layout {signature.layout} at a time",
            "use 32 or 64 of the many where their k is not contiguous",
        )
    static = skinny_bytes(schedule)
    if static > 48 * 1024:
        yield Violation(
            "nv-shared-memory",
            f"the sums of {warps} warps take {static} bytes of shared memory, over {48 * 1024}",
            "use fewer warps or a smaller tile",
        )


RULES = (_signature, _tma_ws, _multistage, _skinny)


def _unaligned(stride: int, dtype: str) -> bool:
    return stride * DTYPES[dtype].bytes % 16 != 0


def _multistage_limits(schedule: MultistageSchedule, p: GemmProblem) -> Iterator[Violation]:
    largest = max(p.m, p.n, p.k)
    if largest >= MULTISTAGE_SIZE:
        yield Violation("nv-size", f"a size of {largest} is 2^29 or more", f"use {LOOPS}")
    if -(-p.m // schedule.tile[0]) * -(-p.n // schedule.tile[1]) * p.batch >= MAX_SIZE:
        yield Violation("nv-size", "2^31 or more tiles", f"use {LOOPS}")
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


def limits(schedule: NvidiaSchedule, problem: GemmProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the C check of the built kernel says the same."""
    p = problem
    if isinstance(schedule, GpuLoopsSchedule) or 0 in (p.m, p.n, p.batch):
        return
    if isinstance(schedule, MultistageSchedule):
        yield from _multistage_limits(schedule, p)
        return
    if p.k == 0:
        yield Violation("nv-empty-k", f"k is 0, and {schedule.pipeline} has nothing to copy", f"use {LOOPS}")
    if max(p.m, p.n, p.k) >= MAX_SIZE:
        yield Violation("nv-size", f"a size of {max(p.m, p.n, p.k)} is 2^31 or more", f"use {LOOPS}")
    yield from _skinny_limits(schedule, p) if isinstance(schedule, SkinnySchedule) else _tma_ws_limits(schedule, p)


def _misaligned(pipeline: str, wrong: str, remedy: str) -> Violation:
    what = f"the row or leading stride of {wrong}" if wrong else "an operand's address or batch stride"
    return Violation("nv-alignment", f"{what} is not a multiple of 16 bytes, which {pipeline} needs", remedy)


def _tma_ws_limits(schedule: TmaWsSchedule, p: GemmProblem) -> Iterator[Violation]:
    """Operands the copy engine cannot read are copied; what it stores must fit."""
    if schedule.store == "tma":
        # The copy engine writes whole 16-byte pieces: a row of E that ends inside one would be written past its end.
        wrong = "E" if _unaligned(p.c_stride, p.dtype_c) or _unaligned(p.n, p.dtype_c) else ""
        if wrong or not p.aligned:
            yield _misaligned("tma_ws", wrong, "align it, or use a kernel with the direct store")
    steps = -(-p.k // schedule.tile[2])
    blocks = schedule.cluster[0] * schedule.cluster[1] if schedule.dealing == "cluster_k" else 1
    if 0 < steps < blocks:
        yield Violation("nv-cluster-k", f"k {p.k} is too short for {blocks} blocks", "use another way to deal")
    if -(-p.m // schedule.tile[0]) * -(-p.n // schedule.tile[1]) * p.batch * steps * blocks >= MAX_SIZE:
        yield Violation("nv-size", "2^31 or more steps of tiles along k", f"use {LOOPS}")


def _skinny_limits(schedule: SkinnySchedule, p: GemmProblem) -> Iterator[Violation]:
    wrong = [x for x in "ab" if _unaligned(getattr(p, f"{x}_stride"), getattr(p, f"dtype_{x}"))]
    if wrong or not p.aligned:
        yield _misaligned("skinny", ", ".join(wrong).upper(), f"align it, or use tma_ws or {LOOPS}")
    few, most = (p.n, schedule.tile[1]) if schedule.few == "columns" else (p.m, schedule.tile[0])
    if few > most:
        yield Violation("nv-skinny-size", f"{few} {schedule.few} are over the {most} of this kernel", "use tma_ws")
    if p.k % SKINNY_LINES:
        yield Violation("nv-skinny-k", f"k {p.k} is not a multiple of {SKINNY_LINES}", f"use tma_ws or {LOOPS}")
    if p.batch > 65535:
        yield Violation("nv-size", f"a batch of {p.batch} is over 65535", f"use tma_ws or {LOOPS}")


def grains(schedule: NvidiaSchedule) -> Shape:
    """Every kernel has edge code, so nothing is ever padded for the lack of it."""
    return (1, 1, 1)


def copied_sizes(schedule: NvidiaSchedule, problem: GemmProblem) -> Shape:
    """m, n and k of copies in which the kernel serves the problem: rows the copy engine can read, and some k."""
    p = problem
    a, b, c = (LINE_BYTES // DTYPES[one].bytes for one in (p.dtype_a, p.dtype_b, p.dtype_c))
    return whole_rows(p, max(1, p.k), (1, 1, 1), (a, b, c))


def pack_format(schedule: NvidiaSchedule) -> tuple[object, ...]:
    """Swizzled atoms of eight columns by 128 bytes of k (copies/pack.h): the same for every tile."""
    return ("atoms", 8, K_BYTES)


def residency(spec: KernelSpec) -> Residency:
    """How the blocks of a kernel lie on the device, as learned models see it."""
    schedule: NvidiaSchedule = spec.schedule
    if isinstance(schedule, TmaWsSchedule):
        ring, (m, n) = shared_bytes(spec.signature, schedule), schedule.cluster
        return Residency(1, 1, 1, m * n, ring) if schedule.dealing == "cluster_k" else Residency(m, n, 1, 1, ring)
    if isinstance(schedule, MultistageSchedule):
        ring = stages.shared_bytes(spec.signature, schedule)
        threads = 32 * schedule.warp_grid[0] * schedule.warp_grid[1]
        registers = threads * min(256, 2 * schedule.tile[0] * schedule.tile[1] // threads + 64)
        return Residency(
            held=max(1, min(arch_by_name(spec.arch).scratch_bytes // ring, 65536 // registers)), ring_bytes=ring
        )
    if isinstance(schedule, SkinnySchedule):
        warps, lines = schedule.warp_grid[2], sum(schedule.tile[:2])
        deep = 2 if spec.signature.layout[1 if schedule.few == "rows" else 0] != "r" else 1
        held = max(1, min(64 // warps, 65536 // (32 * warps * (36 + deep * lines))))
        return Residency(held=held, ring_bytes=warps * schedule.tile[1 if schedule.few == "rows" else 0] * 128 * deep)
    return Residency()
