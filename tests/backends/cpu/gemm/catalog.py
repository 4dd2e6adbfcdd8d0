"""The kernels these tests build: few to compile, chosen to cover every pair of what a kernel is made of.

`make test-all` compiles the same on every machine, of all CPU levels of the arch table; those this CPU has are run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import import_module
from itertools import combinations, product
from pathlib import Path
from typing import Any

from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.names import (
    CpuDirectSchedule,
    CpuLoopsSchedule,
    CpuPackedSchedule,
    CpuSchedule,
    CpuStreamSchedule,
)
from tilewright.arch import all_archs, runnable_host_archs
from tilewright.arch import arch as facts_of
from tilewright.backends.cpu.vectors import lanes
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.problem import accumulator
from tilewright.ops.gemm.spec import LAYOUTS, GemmSignature

BLOCKS = {  # rows, vectors: the shapes of the pools, and the smallest
    32: ((8, 3), (14, 2), (5, 2), (1, 1), (28, 1), (6, 4)),
    16: ((6, 2), (3, 3), (4, 2), (1, 1), (12, 1)),
}


# ISA levels, plainest first.
LEVELS = tuple(
    one.name
    for one in sorted(all_archs().values(), key=lambda one: (len(one.includes), one.name))
    if one.family == "cpu"
)
# For what no level changes: any machine runs the first, and most of those for x86 the second.
PLAIN_LEVELS = ("generic", "x86_64_v3")


def runnable() -> tuple[str, ...]:
    """ISA levels of this machine, plainest first."""
    return tuple(one.name for one in reversed(runnable_host_archs()))


def best() -> str:
    return runnable()[-1]


def plain() -> str:
    """The better of the plain levels this machine runs."""
    return [one for one in PLAIN_LEVELS if one in runnable()][-1]


def spec(
    pipeline: str,
    arch: str,
    dtypes: tuple[str, str, str] = ("fp32", "fp32", "fp32"),
    layout: str = "rrr",
    *,
    block: int = 0,
    tiles: tuple[int, int] = (2, 2),
    k_steps: int = 8,
    unroll: int = 1,
    prefetch: int = 0,
    split_k: int = 1,
    pad: tuple[bool, bool, bool] = (True, True, True),
    epilogue: str = "PassThrough",
    num_d: int = 0,
    dtype_d: str = "",
) -> KernelSpec:
    """A spec with tiles so small that every edge is met by matrices of a few hundred elements."""
    facts = facts_of(arch)
    a, b, c = dtypes
    plain = epilogue == "PassThrough" and not num_d
    signature = GemmSignature(
        variant="preshuffle" if pipeline == "preshuffle" else "standard" if plain else "multi_d",
        dtype_a=a,
        dtype_b=b,
        dtype_acc=accumulator(a),
        dtype_c=c,
        dtype_d=dtype_d or c,
        layout=layout,
        epilogue=epilogue,
        num_d=num_d,
    )
    step, width = cpu.dot_step(signature, facts), lanes(facts)
    schedule: CpuSchedule = CpuLoopsSchedule()
    if pipeline in cpu.STREAMS:
        most = cpu.GEMV_MAX if pipeline == "gemv" else (5, 19, 40)[block % 3]
        tile = (most, 4 * width, width * step * (1 + block % 2))
        schedule = CpuStreamSchedule(pipeline, tile, (1, width, step), prefetch=prefetch)
    elif pipeline != "loops":
        shapes = BLOCKS[facts.vector_registers]
        rows, vectors = shapes[block % len(shapes)]
        warp_tile = (rows, vectors * width, step)
        tile = (rows * tiles[0], vectors * width * tiles[1], step * k_steps)
        packed = CpuPackedSchedule(pipeline, tile, warp_tile, pad, split_k, unroll, prefetch)
        schedule = CpuDirectSchedule(warp_tile) if pipeline == "direct" else packed
    return KernelSpec("gemm", signature, schedule, arch)


Factors = tuple[str, str, str, str, str, str]  # pipeline, arch, dtypes of A, B and C, layout


def _pairs(one: Factors) -> Iterator[tuple[object, ...]]:
    yield from ((i, one[i], j, one[j]) for i, j in combinations(range(len(one)), 2))
    if one[2] == one[3]:
        yield ("same", one[0], one[2])  # each pipeline with equal inputs of each type
    if one[2] == "int8":
        yield ("int8", one[0], one[1])  # whose dot product is another at every ISA level


def _all_factors(archs: tuple[str, ...]) -> list[Factors]:
    outputs = ("fp32", "fp16", "bf16", "int32", "int8")
    inputs = (*cpu.FLOATS, "int8")
    found = product(cpu.PIPELINES, archs, inputs, inputs, outputs, LAYOUTS)
    return [one for one in found if not legality.check(spec(one[0], one[1], (one[2], one[3], one[4]), one[5]))]


@lru_cache(maxsize=1)
def covering() -> tuple[KernelSpec, ...]:
    """Greedy: every legal pair of pipeline, ISA level, dtypes and layout is in some kernel."""
    candidates = _all_factors(LEVELS)
    rng = random.Random(20)
    rng.shuffle(candidates)
    pairs_of = {one: frozenset(_pairs(one)) for one in candidates}
    missing = {pair for pairs in pairs_of.values() for pair in pairs}
    chosen: list[KernelSpec] = []
    while missing:
        take = max(candidates, key=lambda one: len(pairs_of[one] & missing))
        missing -= pairs_of[take]
        index = len(chosen)
        chosen.append(
            spec(
                take[0],
                take[1],
                (take[2], take[3], take[4]),
                take[5],
                block=index,
                tiles=((2, 2), (1, 3), (3, 1))[index % 3],
                k_steps=(8, 12, 40)[index % 3],
                unroll=(1, 2, 4, 8)[index % 4],
                prefetch=(0, 8)[index % 2],
                split_k=(1, 1, 3)[index % 3],
            )
        )
    return tuple(chosen)


@cache
def core_at(level: str) -> dict[str, KernelSpec]:
    """A kernel of every pipeline at a level, and the special dot products."""
    f32, bf16, int8 = ("fp32",) * 3, ("bf16", "bf16", "bf16"), ("int8", "int8", "int32")

    def at_level(pipeline: str, *args: Any, **more: Any) -> KernelSpec:
        """What a level adds matters to few kernels; the others are those of the plainest level they are the same at."""
        wanted = spec(pipeline, level, *args, **more)
        below = (spec(pipeline, name, *args, **more) for name in LEVELS if name in facts_of(level).includes)
        return next((one for one in below if one.schedule == wanted.schedule), wanted)

    return {
        "packed": at_level("packed", f32, "rrr", unroll=2, prefetch=8),
        "packed_split": at_level("packed", f32, "rcr", split_k=3, block=1),
        "packed_bf16": at_level("packed", bf16, "crr", block=2),
        "packed_int8_split": at_level("packed", int8, "rcr", split_k=2),
        "direct": at_level("direct", f32, "rrr"),
        "direct_fp16": at_level("direct", ("fp16", "fp16", "fp32"), "crr", block=1),
        "gemv": at_level("gemv", f32, "rrr"),
        "gemv_fp8": at_level("gemv", ("fp8_e5m2", "fp8_e5m2", "fp32"), "ccr"),
        "stream": at_level("stream", f32, "rcr", block=1, prefetch=8),
        "stream_int8": at_level("stream", int8, "rrr", block=1),
        "preshuffle": at_level("preshuffle", f32, "rcr", split_k=2),
        "preshuffle_int8": at_level("preshuffle", int8, "crr", split_k=3),
        "loops": at_level("loops", ("fp8_e4m3", "fp8_e4m3", "fp32"), "rrr"),
    }


def core() -> dict[str, KernelSpec]:
    """Those of this machine's best level."""
    return core_at(best())


def every_core() -> tuple[KernelSpec, ...]:
    return tuple(dict.fromkeys(one for level in LEVELS for one in core_at(level).values()))


def of_all_tests() -> tuple[KernelSpec, ...]:
    """What the tests of this folder name in KERNELS, and what older CPUs would run instead."""
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    modules = [import_module(f"tests.backends.cpu.gemm.{file.stem}") for file in files]
    named = [spec for module in modules for spec in getattr(module, "KERNELS", ())]
    return tuple(dict.fromkeys([*every_core(), *covering(), *named]))
