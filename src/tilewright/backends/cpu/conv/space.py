"""Convolution on the CPU family: what is legal, and the schedules worth proposing.

implicit      forward and backward-data as a GEMM that reads its operand where it lies
planar        the same for results of few channels, with pixels in lanes
winograd      the same of 3 x 3 windows with fewer products and another error bound (reference.py)
outer         backward-weight as sums of outer products
direct_weight the same of few channels, with filters in lanes
lanes         depthwise and small groups, forward and backward-data; `lanes_weight` backward-weight
loops         the floor: any size, stride and element type
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.schedules import (
    CpuDirectWeightSchedule,
    CpuImplicitSchedule,
    CpuLanesSchedule,
    CpuOuterSchedule,
    CpuPlanarSchedule,
    CpuSchedule,
    CpuWinogradSchedule,
    Pair,
    Shape,
)
from tilewright.backends.cpu.vectors import block_rules, dot_step_of, lanes
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem, minimal_filtering
from tilewright.ops.conv.schedule import ConvSchedule, LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules

SCHEDULES: tuple[type[ConvSchedule], ...] = (
    CpuImplicitSchedule,
    CpuWinogradSchedule,
    CpuOuterSchedule,
    CpuDirectWeightSchedule,
    CpuPlanarSchedule,
    CpuLanesSchedule,
    LoopsSchedule,
)

VARIANTS_OF = {
    "implicit": ("forward", "backward_data"),
    "planar": ("forward", "backward_data"),
    "winograd": ("forward", "backward_data"),
    "outer": ("backward_weight",),
    "direct_weight": ("backward_weight",),
    "lanes": ("forward", "backward_data"),
    "lanes_weight": ("backward_weight",),
    "loops": ("forward", "backward_data", "backward_weight"),
}
MAX_SPLIT_K = 64
SQUARES = (2, 4)  # sides of squares of results there are transforms for
MAX_TAPS = 12  # of a lanes_weight block: each has a pointer in a register
DIRECT_CHANNELS = 256  # of a group whose lines direct_weight packs
PLANAR_DEPTH = 512  # channels of a group planes are made of
PLANAR_PARTS = 64  # that strides take a plane apart into
BEYOND = 64  # pixels that strides, dilation and padding may reach beyond the input
STRIP_DEPTH = 64  # channels of a group a strip holds
EXACT_PRODUCTS = 1024  # of bytes, whose sum fp32 holds exactly
TILE_LIMIT = 1 << 22  # elements of a cache block


def dot_step(signature: ConvSignature, arch: Arch) -> int:
    """k elements one multiply-accumulate instruction of an implicit GEMM eats: the warp tile's k."""
    return dot_step_of(arch, signature.dtype)


def signature_rules(signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from dtype_rules(signature)


def _signature(signature: ConvSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _direction(signature: ConvSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    known = VARIANTS_OF[schedule.pipeline]
    if signature.variant not in known:
        yield Violation(
            "cpu-direction",
            f"pipeline {schedule.pipeline} has no {signature.variant}",
            f"use it for {' or '.join(known)}",
        )


def _registers(signature: ConvSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, LoopsSchedule):
        return
    if isinstance(schedule, CpuLanesSchedule) and schedule.warp_tile[1] != lanes(arch):
        message = f"warp_tile_n {schedule.warp_tile[1]}: {schedule.pipeline} works on single vectors of {arch.name}"
        yield Violation("cpu-vector", message, f"use {lanes(arch)}")
        return
    step = dot_step(signature, arch) if isinstance(schedule, CpuImplicitSchedule) else 1
    what = f"{schedule.pipeline} of {signature.dtype}"
    yield from block_rules(schedule.warp_tile, step, what, arch)
    if schedule.pipeline == "lanes_weight" and schedule.warp_tile[0] > MAX_TAPS:
        yield Violation("cpu-taps", f"warp_tile_m {schedule.warp_tile[0]} is over {MAX_TAPS}", f"use 1 to {MAX_TAPS}")


def _tiles(signature: ConvSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, (CpuPlanarSchedule, CpuLanesSchedule, LoopsSchedule)):
        return
    tile = dict(zip(schedule.axis_names["tile"], schedule.tile, strict=True))
    for name, block in zip("mnk", schedule.warp_tile, strict=True):
        size = tile.setdefault(name, block)
        if size % block:
            yield Violation(
                "cpu-tile",
                f"tile_{name} {size} is not a multiple of warp_tile_{name} {block}",
                f"use {max(1, size // block) * block}",
            )
    m, n, k = tile["m"], tile["n"], tile["k"]
    if max(m * n, n * k, m * k) > TILE_LIMIT:
        yield Violation("cpu-cache-block", f"tile {m}x{n}x{k} fills no cache of today", "use a smaller tile")
    if isinstance(schedule, CpuOuterSchedule) and schedule.split_k > MAX_SPLIT_K:
        yield Violation("cpu-split-k", f"split_k {schedule.split_k} is over {MAX_SPLIT_K}", f"use 1 to {MAX_SPLIT_K}")


def _winograd(signature: ConvSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuWinogradSchedule):
        return
    if schedule.results not in SQUARES:
        yield Violation("cpu-winograd", f"there is no transform for squares of {schedule.results}", "use 2 or 4")
    if signature.dtype == "int8":
        yield Violation("cpu-winograd-type", "transforms of int8 are not exact", "use implicit")


def _planar(signature: ConvSignature, schedule: CpuSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CpuPlanarSchedule):
        return
    if signature.dtype == "int8":
        yield Violation("cpu-planar-type", "planes are of floats, which do not hold sums of int8", "use implicit")
    if schedule.planes > TILE_LIMIT:
        yield Violation("cpu-cache-block", f"planes of {schedule.planes} floats fill no cache of today", "use fewer")


RULES = (_signature, _direction, _registers, _tiles, _winograd, _planar)


def _far_beyond(problem: ConvProblem) -> Iterator[Violation]:
    """Steps and padding for which lines would be laid out that have next to nothing in them."""
    p = problem
    for i, size in enumerate(p.size):
        named = [("padding", p.before[i])]
        named += [("stride", p.stride[i])] if p.out[i] > 1 else []
        named += [("dilation", p.dilation[i])] if p.window[i] > 1 else []
        for what, pixels in named:
            if pixels > size + BEYOND:
                message = f"{what} {pixels} reaches far beyond an input of {size} pixels"
                yield Violation("cpu-beyond", message, f"use at most {size + BEYOND}, or loops")


def limits(schedule: CpuSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    if isinstance(schedule, LoopsSchedule):
        return
    yield from _far_beyond(problem)
    if isinstance(schedule, CpuWinogradSchedule) and not minimal_filtering(problem):
        yield Violation("cpu-window", f"the window is {problem.window}, stride {problem.stride}", "use implicit")
    if isinstance(schedule, CpuDirectWeightSchedule) and problem.group_channels > DIRECT_CHANNELS:
        message = f"a group has {problem.group_channels} channels, over {DIRECT_CHANNELS}"
        yield Violation("cpu-lines", message, "use outer")
    depth = problem.group_filters if problem.variant == "backward_data" else problem.group_channels
    if isinstance(schedule, CpuPlanarSchedule) and depth > PLANAR_DEPTH:
        yield Violation("cpu-planes", f"groups sum over {depth} channels, over {PLANAR_DEPTH}", "use implicit")
    if isinstance(schedule, CpuPlanarSchedule) and problem.variant == "forward":
        parts = prod(stride for stride, out in list(zip(problem.stride, problem.out, strict=True))[-2:] if out > 1)
        if parts > PLANAR_PARTS:
            message = f"strides take planes apart into {parts}, over {PLANAR_PARTS}"
            yield Violation("cpu-parts", message, "use implicit")
    if isinstance(schedule, CpuLanesSchedule):
        if depth > STRIP_DEPTH:
            yield Violation("cpu-strip", f"groups sum over {depth} channels, over {STRIP_DEPTH}", "use implicit")
        if problem.dtype == "int8" and depth * prod(problem.window) > EXACT_PRODUCTS:
            yield Violation(
                "cpu-exact", f"{depth * prod(problem.window)} products are over {EXACT_PRODUCTS}", "use implicit"
            )


def turned(schedule: ConvSchedule, problem: ConvProblem) -> str:
    """Which of x, w and y a kernel turns, channels being apart; `planar` reads and writes planes as they are."""
    p, found = problem, ""
    for name in "" if isinstance(schedule, LoopsSchedule) else "xwy":
        strides = getattr(p, f"{name}_strides")
        planes = isinstance(schedule, CpuPlanarSchedule) and name != "w" and strides[-2] == 1
        if strides[-1] != 1 and not (planes and (p.variant == "forward" or name == "y" or p.stride[-1] == 1)):
            found += name
    return found


def remarks(schedule: ConvSchedule, problem: ConvProblem) -> list[str]:
    """What a kernel turns in its workspace."""
    found = turned(schedule, problem)
    return [f"turns {', '.join(found)} to channels-last in its workspace, the result back"] if found else []


def generic_schedule(signature: ConvSignature, arch: Arch) -> ConvSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()


# Rows and vectors of the register blocks worth having, best first, by vector registers.
_BLOCKS: dict[int, tuple[tuple[int, int], ...]] = {
    32: ((14, 2), (6, 4), (28, 1), (8, 3), (12, 2), (9, 3)),
    16: ((6, 2), (12, 1), (4, 2), (3, 3)),
}
_DEFAULT_BLOCKS = {32: 3, 16: 2}  # how many of them are in `default`
_PLANAR = {32: ((12, 2), (4, 6), (8, 3)), 16: ((6, 2), (3, 3), (4, 2))}  # channels and vectors of pixels
_PIXELS = {32: (14, 28, 8), 16: (12, 8, 4)}


def _implicit(signature: ConvSignature, arch: Arch, rows: int, vectors: int, blocks: Shape) -> CpuImplicitSchedule:
    """Its cache block is `blocks` register blocks by m and n, and words by k."""
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuImplicitSchedule(
        (rows * blocks[0], vectors * width * blocks[1], blocks[2] * step), (rows, vectors * width, step)
    )


def _minimal(arch: Arch, results: int, rows: int, vectors: int, blocks: Pair) -> CpuWinogradSchedule:
    width = lanes(arch)
    return CpuWinogradSchedule(results, (rows * blocks[0], vectors * width * blocks[1]), (rows, vectors * width, 1))


def _outer(arch: Arch, rows: int, vectors: int, blocks: Shape, split_k: int = 1) -> CpuOuterSchedule:
    width = lanes(arch)
    return CpuOuterSchedule(
        (rows * blocks[0], vectors * width * blocks[1], blocks[2]), (rows, vectors * width, 1), split_k
    )


def _direct(arch: Arch, rows: int, vectors: int, filters: int = 64, pixels: int = 256) -> CpuDirectWeightSchedule:
    width = vectors * lanes(arch)
    return CpuDirectWeightSchedule((width * _about(filters, width), pixels), (rows, width, 1))


def _planes(arch: Arch, rows: int, vectors: int, floats: int = 1 << 16) -> CpuPlanarSchedule:
    return CpuPlanarSchedule(floats, (rows, vectors * lanes(arch), 1))


def _by_lanes(signature: ConvSignature, arch: Arch, block: int) -> CpuLanesSchedule:
    pipeline = "lanes_weight" if signature.variant == "backward_weight" else "lanes"
    return CpuLanesSchedule(pipeline, (block, lanes(arch), 1))


def _about(size: int, block: int) -> int:
    """How many blocks make about `size`."""
    return max(1, round(size / block))


def _default(signature: ConvSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """One kernel for each kind of problem."""
    wide, width = arch.vector_registers >= 32, lanes(arch)
    blocks = _BLOCKS[arch.vector_registers][: _DEFAULT_BLOCKS[arch.vector_registers]]
    if signature.variant == "backward_weight":
        for rows, vectors in blocks:
            yield _outer(arch, rows, vectors, (_about(64, rows), _about(64, vectors * width), 256))
        rows, vectors = blocks[0]
        yield _outer(arch, rows, vectors, (_about(64, rows), _about(64, vectors * width), 256), split_k=8)
        yield _direct(arch, rows, vectors)
        yield _by_lanes(signature, arch, 12 if wide else 8)
    else:
        for rows, vectors in blocks:
            yield _implicit(signature, arch, rows, vectors, (_about(128, rows), _about(256, vectors * width), 1152))
        rows, vectors = blocks[0]
        for results in SQUARES:
            yield _minimal(arch, results, rows, vectors, (_about(112 // results, rows), _about(128, vectors * width)))
        yield _minimal(arch, 4, 2 * rows, 1, (1, 4))  # narrow groups
        for rows, vectors in _PLANAR[arch.vector_registers][:2]:
            yield _planes(arch, rows, vectors)
        yield _by_lanes(signature, arch, _PIXELS[arch.vector_registers][0])
    yield LoopsSchedule()


def _tiles_swept(arch: Arch, far: bool) -> Iterator[tuple[int, int, Shape]]:
    """Register blocks, and how many of them are a cache block."""
    width = lanes(arch)
    for rows, vectors in _BLOCKS[arch.vector_registers]:
        for m in (32, 64, 128, 256) if far else (64, 128):
            for n in (64, 128, 256, 512) if far else (64, 256):
                for k in (128, 256, 384, 576, 1152, 2304) if far else (256, 1152):
                    yield rows, vectors, (_about(m, rows), _about(n, vectors * width), k)


def _swept_weight(signature: ConvSignature, arch: Arch, far: bool) -> Iterator[CpuSchedule]:
    for rows, vectors, shape in _tiles_swept(arch, far):
        for split_k in (1, 2, 8, 32) if far else (1, 8):
            yield _outer(arch, rows, vectors, shape, split_k)
    for rows, vectors in _BLOCKS[arch.vector_registers][: None if far else 3]:
        for filters, pixels in product((32, 64, 128) if far else (64,), (128, 256, 512) if far else (256,)):
            yield _direct(arch, rows, vectors, filters, pixels)
    for taps in (2, 4, 6, 8, 10, MAX_TAPS) if far else (4, 8, MAX_TAPS):
        yield _by_lanes(signature, arch, taps)


def _swept_pixels(signature: ConvSignature, arch: Arch, far: bool) -> Iterator[CpuSchedule]:
    width = lanes(arch)
    for rows, vectors, shape in _tiles_swept(arch, far):
        yield _implicit(signature, arch, rows, vectors, shape)
    for results, m, n in product(SQUARES, (14, 28, 56) if far else (28, 56), (64, 128, 256) if far else (128,)):
        for rows, vectors in _BLOCKS[arch.vector_registers][:2]:
            yield _minimal(arch, results, rows, vectors, (_about(m, rows), _about(n, vectors * width)))
    for rows, vectors in _PLANAR[arch.vector_registers]:
        for floats in (1 << 14, 1 << 15, 1 << 16, 1 << 17) if far else (1 << 16,):
            yield _planes(arch, rows, vectors, floats)
    for pixels in range(4, 29, 2) if far else _PIXELS[arch.vector_registers]:
        yield _by_lanes(signature, arch, pixels)


def _swept(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """Every axis turned; `profiler` turns them further than `full`."""
    turned = _swept_weight if signature.variant == "backward_weight" else _swept_pixels
    yield from turned(signature, arch, pool == "profiler")
    yield LoopsSchedule()


def schedules(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuSchedule]:
    """What the pool proposes for one signature; some of it may be illegal.

    Asked for `default`, `full` and `profiler`; the other pools are rules over these (`pools.py`).
    """
    yield from _default(signature, arch) if pool == "default" else _swept(pool, signature, arch)
