"""What CK Tile's headers, with our mends, do with data in registers, on the host: every count the pools can reach.

A kernel shows one count of one element type and takes half a minute; here the functions themselves run, compiled for
the host by the toolchain's own compiler, and each element is looked at.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.arch import Arch, all_archs
from tilewright.backends.base import backend
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.hip.profiles import profile
from tilewright.backends.hip.toolchain import HipToolchain
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.pools import POOLS, signatures

SEED = 8
SOURCE = Path(__file__).with_name("data_movement.cpp")
POOL_NAMES = ("default", "tests", "full", "profiler")

# Bytes of an element, lanes, lines along k, extent of the contiguous side, elements of one load.
Tile = tuple[int, int, int, int, int]


def _inputs(arch: Arch) -> Iterator[str]:
    """One element type of each size that the arch multiplies with matrix instructions."""
    sizes = set()
    for one in DTYPES:
        if any(key.startswith(f"{one}_{one}_") for key in arch.warp_tiles or {}) and DTYPES[one].bytes not in sizes:
            sizes.add(DTYPES[one].bytes)
            yield one


def _proposed(arch: Arch) -> Iterator[KernelSpec]:
    # Both operands of crr lie across k; what a lane turns depends on the element's size, not on its type.
    for pool in POOL_NAMES:
        for signature in signatures(list(_inputs(arch)), ("crr",), ("standard",)):
            yield from POOLS.proposals(pool, arch.name, [signature])


def _tiles(spec: KernelSpec) -> Iterator[tuple[int, int, Tile]]:
    """Vectors a lane turns, elements of each, and the tile it belongs to."""
    m, n, k = spec.schedule.tile
    lanes = shape.threads(spec.schedule)
    for (dtype, rows, width), extent in zip(shape.transposed(spec.signature, spec.schedule), (m, n), strict=True):
        yield rows, width, (shape.bytes_of(dtype), lanes, k, extent, width)


@lru_cache(maxsize=1)
def reachable() -> dict[tuple[int, int, int], Tile]:
    """Bytes, vectors and elements of each that a lane of some legal kernel turns, with one tile for each."""
    found: dict[tuple[int, int, int], Tile] = {}
    for arch in all_archs().values():
        if arch.family != "cdna" or "lds-transpose" in arch.features:
            continue
        seen = set()
        for spec in _proposed(arch):
            h = spec.schedule
            if not isinstance(h, CkTileSchedule):
                continue
            alike = (spec.signature.dtype_a, h.tile, h.warp_grid)
            wanted = {(one[2][0], *one[:2]): one[2] for one in _tiles(spec)} if alike not in seen else {}
            seen.add(alike)
            if not wanted.keys() <= found.keys() and not legality.check(spec):
                found.update(wanted)
    return found


def _types(size: int) -> set[str]:
    """Every C++ type of an element of that size that is an input of some kernel."""
    inputs = {key for arch in all_archs().values() for key in arch.warp_tiles or {}}
    named = {one for one in profile().types if any(key.startswith(f"{one}_") for key in inputs)}
    return {profile().types[one] for one in named if DTYPES[one].bytes == size}


def _instances() -> Iterator[str]:
    for (size, rows, width), (_, lanes, lines, extent, _) in sorted(reachable().items()):
        for kind in sorted(_types(size)):
            # A single vector, or vectors of one element, are copied: CK Tile asks nobody to turn them.
            if rows > 1 and width > 1:
                yield f"vectors<{kind}, {rows}, {width}>();"
            yield f"tile<{kind}, {lanes}, {lines}, {extent}, {width}>();"
            yield f"buffer<{kind}, {rows * width}, {width}>();"
            yield f"buffer<{kind}, {rows * width}, {rows}>();"


def _packed() -> Iterator[str]:
    """Every matrix instruction under a packed B."""
    known = set()
    for arch in all_archs().values():
        if arch.family != "cdna" or arch.features & {"lds-transpose", "wmma"}:
            continue
        for signature in signatures(list(_inputs(arch)), ("rcr",), ("preshuffle",)):
            for pool in POOL_NAMES:
                for spec in POOLS.proposals(pool, arch.name, [signature]):
                    one = (signature.dtype_a, signature.dtype_acc, spec.schedule.warp_tile[1:])
                    if one not in known and not legality.check(spec):
                        known.add(one)
    for dtype, acc, (columns, depth) in sorted(known):
        kinds = {kind: profile().types[kind] for kind in (dtype, acc)}
        yield f"packed<{kinds[dtype]}, {kinds[acc]}, {columns}, {depth}>();"


def _run(folder: Path, instances: list[str], *options: str) -> tuple[int, list[str]]:
    toolchain = backend("hip").toolchain()
    assert isinstance(toolchain, HipToolchain)
    (folder / "asked.h").write_text("\n".join(instances))
    program = folder / "moves"
    places = [folder, *toolchain.include_dirs("gemm"), toolchain.ck_tile().folder]
    words = ["-x", "hip", "--cuda-host-only", "-nogpulib", "-std=c++17", "-O1", "-w", f"-DSEED={SEED}u", *options]
    words += [f"-I{one}" for one in places]
    command = [str(toolchain.tool("clang++")), *words, "-c", str(SOURCE), "-o", str(program) + ".o"]
    for one in (command, [str(toolchain.tool("clang++")), str(program) + ".o", "-o", str(program)]):
        done = subprocess.run(one, capture_output=True, text=True, check=False, env=settings.child_environment())
        assert done.returncode == 0, done.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout.splitlines()


def test_the_pools_reach_the_count_that_was_wrong() -> None:
    """Two vectors of one-byte elements, and more of them in steps of two."""
    counts = {(rows, width) for size, rows, width in reachable() if size == 1}
    assert {(2, 16), (4, 16), (8, 16)} <= counts
    assert all(rows & (rows - 1) == 0 and width & (width - 1) == 0 for rows, width in counts)


def test_turned_counts_are_those_of_the_tile() -> None:
    """Lanes, vectors and elements of each make up the whole tile."""
    for (size, rows, width), (bytes_of, lanes, lines, extent, again) in reachable().items():
        assert (size, width) == (bytes_of, again)
        assert rows * width * lanes == lines * extent


@pytest.mark.amd
def test_everything_a_lane_turns_comes_out_where_it_belongs(tmp_path: Path) -> None:
    packed = list(_packed())
    assert len(packed) >= 8
    assert _run(tmp_path, [*_instances(), *packed]) == (0, [])


@pytest.mark.amd
def test_counts_no_pool_reaches_are_right_too(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    counts = [(draw.randint(2, 12), draw.randint(2, 12)) for _ in range(20)]
    kinds = ("ck_tile::int8_t", "ck_tile::fp8_t", "ck_tile::bf8_t", "float")
    assert _run(tmp_path, [f"vectors<{draw.choice(kinds)}, {r}, {c}>();" for r, c in counts]) == (0, [])


@pytest.mark.amd
def test_without_the_mend_bytes_in_pairs_are_wrong(tmp_path: Path) -> None:
    """If newer headers have it right, the mend may go: this test then says so."""
    asked = ["vectors<ck_tile::int8_t, 2, 16>();", "vectors<ck_tile::int8_t, 4, 16>();"]
    assert _run(tmp_path, asked, "-DAS_THE_HEADERS_HAVE_IT") == (1, ["transpose_vectors 1 2 16"])
