"""A guess at seconds, for choosing among convolution kernels that were never measured on the device.

A convolution costs what its matrix product costs, a little more for finding pixels, and more where loads are narrow: a
load of one element takes as long as one of sixteen bytes.  Copies of operands come before and after.  Only the order
of the answers matters.
"""

from __future__ import annotations

from math import prod

from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.conv import tiled as amd_tiled
from tilewright.backends.hip.conv.copies import copied, copies
from tilewright.backends.hip.conv.schedules import FastSchedule
from tilewright.backends.hip.conv.shape import as_product, loads, residues
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.backends.hip.gemm import estimate as gemm_estimate
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.gemm.problem import GemmProblem

START = 5.0e-6
LOOP_RATE = 5.0e11  # products of the loops a second
WALKING = 1.05  # of a product whose rows are found pixel by pixel
LOADS_A_SECOND = 2.4e12  # of lanes, all compute units together
RDNA_CLOCK, RDNA_MEMORY, RDNA_SHARE = 2.4e9, 8.0e11, 0.5
WMMA_MACS, FMA_MACS = 256, 64  # a clock, of one compute unit
COPIED = 1.5e12  # bytes a second, read and written


def seconds(spec: KernelSpec, problem: ConvProblem) -> float:
    h, p = spec.schedule, problem
    if isinstance(h, LoopsSchedule):
        return START + p.flops / 2 / LOOP_RATE
    if h.special == "copied":
        larger = copied(h, p)
        return _copying(h, p, larger) + _computing(spec, larger)
    return _computing(spec, p)


def _copying(schedule: FastSchedule, problem: ConvProblem, larger: ConvProblem) -> float:
    """Seconds of a launch for each operand, and of its bytes."""
    size, result = (DTYPES[one].bytes for one in (problem.dtype, problem.dtype_out))
    total = 0.0
    for one in copies(schedule, problem):
        bytes_of = result if one == problem.written else size
        elements = prod(getattr(problem, f"{one}_shape")) + prod(getattr(larger, f"{one}_shape"))
        total += START + elements * bytes_of / COPIED
    return total


def _computing(spec: KernelSpec, problem: ConvProblem) -> float:
    h, p = spec.schedule, problem
    m, n, k = p.gemm[0], p.gemm[1] * h.merged, p.gemm[2] * h.merged
    groups, classes = -(-p.groups // h.merged), 1
    if p.variant == "backward_data":  # a product for each residue, of its share of pixels and taps
        classes = residues(p)
        m, k = -(-m // classes), max(1, -(-k // classes))
    walking = 1.0 if h.special == "pointwise" else WALKING
    loading = _loading(spec, (m, n, k), groups * classes)
    if isinstance(h, TiledConvSchedule):
        return _tiled(spec, (m, n, k), groups * classes, p.bytes) * walking + loading
    signature, schedule = as_product(spec.signature, h)
    product = GemmProblem(
        m=m, n=n, k=k, batch=groups * classes, layout=signature.layout, dtype_a=p.dtype, dtype_b=p.dtype
    )
    found = gemm_estimate.seconds(KernelSpec("gemm", signature, schedule, spec.arch), product)
    return float(found * walking + loading)


def _tiled(spec: KernelSpec, sizes: tuple[int, int, int], batch: int, moved: int) -> float:
    """Seconds of whole rounds of blocks, or of the bytes; with k split the parts are added afterwards."""
    h, arch = spec.schedule, arch_by_name(spec.arch)
    tiles = [-(-size // tile) for size, tile in zip(sizes, h.tile, strict=True)]
    turns = -(-tiles[2] // h.split_k)
    waves = amd_tiled.threads(h) // amd_tiled.WAVE
    together = max(1, 8 // waves)  # blocks of one compute unit that fill it
    rounds = -(-tiles[0] * tiles[1] * h.split_k * batch // (max(1, arch.compute_units) * together))
    reuse = min(1.0, h.tile[0] * h.tile[1] / (h.tile[0] + h.tile[1]) / 48)  # small tiles are fed from LDS too often
    speed = (WMMA_MACS if h.pipeline == "wmma" else FMA_MACS) * RDNA_CLOCK * RDNA_SHARE * reuse / together
    compute = rounds * (turns + 1) * prod(h.tile) / speed
    sums = 2 * h.split_k * sizes[0] * sizes[1] * batch * 4 if h.split_k > 1 else 0
    return float(START * (2 if h.split_k > 1 else 1) + max(compute, (moved + sums) / RDNA_MEMORY))


def _loading(spec: KernelSpec, sizes: tuple[int, int, int], batch: int) -> float:
    """Seconds of issuing more loads than the widest would be."""
    h = spec.schedule
    tiles = [-(-size // tile) for size, tile in zip(sizes, h.tile, strict=True)]
    size, total = shape.bytes_of(spec.signature.dtype), 0.0
    for lines, width in zip(h.tile[:2], loads(spec.signature, h), strict=True):
        each = lines * h.tile[2] * prod(tiles) * batch
        total += each / width - each * size / shape.NATIVE_BYTES
    return total / LOADS_A_SECOND
