"""The multistage schedules worth proposing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.arch import Arch
from tilewright.backends.cuda.gemm.multistage.schedule import MultistageSchedule
from tilewright.backends.cuda.gemm.multistage.shape import (
    k_bytes,
    most_sums,
    multistage,
    shared_bytes,
    streamed_sums,
    sums,
    transposed,
)
from tilewright.ops.gemm.spec import GemmSignature

# Tile, warps, stages and tile_scheduler of kernels for exact fp32, 64 bytes of k each; split_k also stands for tiles.
PLAIN: tuple[tuple[int, int, tuple[int, int], int, str], ...] = (
    (256, 128, (4, 2), 4, "data_parallel"),
    (256, 128, (4, 2), 4, "stream_k"),
    (128, 256, (2, 4), 4, "data_parallel"),
    (128, 256, (2, 4), 4, "stream_k"),
    (128, 128, (2, 2), 3, "split_k"),
    (128, 128, (2, 2), 3, "stream_k"),
    (128, 64, (4, 1), 4, "split_k"),
    (64, 128, (2, 2), 4, "split_k"),
    (64, 64, (2, 2), 3, "split_k"),
    (64, 64, (2, 2), 4, "stream_k"),
    (32, 64, (2, 2), 4, "split_k"),
)
# Tile, bytes of k and warps of kernels for tf32 that `wgmma` cannot read in place, four stages each.
WIDE: tuple[tuple[int, int, int, tuple[int, int]], ...] = (
    (16, 64, 128, (1, 4)),
    (32, 128, 64, (1, 4)),
    (64, 64, 64, (2, 2)),
    (64, 128, 64, (2, 2)),
    (128, 32, 64, (4, 1)),
)


def _plain(signature: GemmSignature, arch: Arch) -> Iterator[MultistageSchedule]:
    """Exact fp32: what is contiguous along k comes float by float whatever its alignment, the rest for both."""
    for bytes_at_once in (16, 0):
        vector = 0 if signature.layout[0] == "r" else bytes_at_once, 0 if signature.layout[1] == "c" else bytes_at_once
        if bytes_at_once == 0 or any(vector):
            for m, n, warps, stages, tile_scheduler in PLAIN:
                schedule = multistage(signature, m, n, 64, warps, stages, vector, tile_scheduler)
                if tile_scheduler != "stream_k" or sums(schedule) <= streamed_sums(signature, schedule, arch):
                    yield schedule


def _wide(signature: GemmSignature) -> Iterator[MultistageSchedule]:
    """tf32 in a layout that `wgmma` does not read: split_k also stands for tiles."""
    for m, n, deep, warps in WIDE:
        yield multistage(signature, m, n, deep, warps, 4, 16, "split_k")
    if signature.layout[0] == "c":  # few rows of a column-major A are seldom aligned
        yield multistage(signature, 16, 64, 128, (1, 4), 4, (0, 16), "split_k")


def _default(signature: GemmSignature, arch: Arch) -> Iterator[MultistageSchedule]:
    """Large and small tiles, for aligned rows and for any; and few tiles with a long k."""
    if signature.dtype_a == "fp32":
        yield from _plain(signature, arch)
        return
    small = 64 if transposed(signature) or signature.dtype_a == "tf32" else 128
    wide = signature.dtype_a == "tf32" and signature.layout != "rcr"
    if wide:
        yield from _wide(signature)
    for vector in (16, 0):
        fewer = 3 if transposed(signature) or (vector == 0 and signature.dtype_a != "tf32") else 4
        most = most_sums(signature, vector or 1)
        if most == 128:
            roomy = arch.scratch_bytes > 200_000
            yield multistage(signature, 128, 256, 64, (2, 4), 4 if roomy else fewer, vector)
            yield multistage(signature, 128, 128, 64, (2, 2), 4, vector)
        else:
            yield multistage(signature, 2 * most, 128, 64, (2, 4), 4, vector)
        if vector == 0 or not wide:
            yield multistage(signature, 64, 64, small, (2, 2), fewer, vector)
            yield multistage(signature, 64, 64, small, (2, 2), fewer, vector, "split_k")
    if most_sums(signature, 1) == 128 and signature.layout != "rcr":
        # Where not both are read along k, a size may be odd for one of them only.
        stages = 4 if arch.scratch_bytes > 200_000 else 3
        yield multistage(signature, 128, 256, 64, (2, 4), stages, (16, 0))
        yield multistage(signature, 128, 256, 64, (2, 4), stages, (0, 16))


def _fitting(signature: GemmSignature, arch: Arch) -> Iterator[MultistageSchedule]:
    """The usual ones; and for alignments none of whose tiles fits into shared memory (48 KB, say), smaller tiles."""
    usual = list(_default(signature, arch))
    yield from usual
    fit = {each.vector for each in usual if shared_bytes(signature, each) <= arch.scratch_bytes}
    lacking = dict.fromkeys(each.vector for each in usual if each.vector not in fit)
    if all(a != b for a, b in lacking):
        return  # tiles for any alignment serve what is aligned on one side only
    for vector in lacking:
        few_sums = most_sums(signature, min(vector)) < 64
        for m, warps, tile_scheduler in (
            (128, (4, 2) if few_sums else (4, 1), "data_parallel"),
            (64, (2, 2), "data_parallel"),
            (64, (2, 2), "split_k"),
        ):
            yield replace(multistage(signature, m, 64, 64, warps, 3, tile_scheduler=tile_scheduler), vector=vector)


def _tests(signature: GemmSignature) -> Iterator[MultistageSchedule]:
    """One of everything the headers can do."""
    most, other = most_sums(signature, 16), 32 if signature.dtype_a == "fp32" else 128
    yield multistage(signature, min(128, 2 * most), 128, 64, (2, 2) if most == 128 else (2, 4), 3)
    yield multistage(signature, 64, 32, 64, (2, 1), 4, 8)
    yield multistage(signature, 64, 128, other, (2, 4), 2, 4)
    yield multistage(signature, 64, 128, 64, (2, 4), 3, 0)
    yield multistage(signature, 64, 64, 64, (2, 2), 3, 0, "split_k")
    if signature.dtype_a == "fp32":
        yield multistage(signature, 64, 64, 32, (2, 2), 3, 16, "stream_k")


def _swept(far: bool, signature: GemmSignature) -> Iterator[MultistageSchedule]:
    grids = ((1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (1, 4)) if far else ((2, 2), (2, 4))
    vectors = (16, 8, 4, 0) if far else (16, 0)
    for m, n, warps in product((32, 64, 128, 256), (32, 64, 128, 256), grids):
        for deep, stages, vector in product(k_bytes(signature.dtype_a), (2, 3, 4, 5) if far else (3, 4), vectors):
            for tile_scheduler in ("data_parallel", "split_k"):
                yield multistage(signature, m, n, deep, warps, stages, vector, tile_scheduler)


def proposals(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[MultistageSchedule]:
    if pool in ("full", "profiler"):
        yield from _swept(pool == "profiler", signature)
    elif pool == "default":
        yield from _fitting(signature, arch)
    elif pool == "tests":
        yield from _tests(signature)
