"""A guess at seconds, for choosing among convolution kernels that were never measured on the device.

A convolution costs what its matrix product costs, a little more for finding pixels, and more where loads are narrow: a
load of one element takes as long as one of sixteen bytes.  Copies of operands come before and after.  Only the order
of the answers matters.
"""

from __future__ import annotations

from math import prod

from tilewright.backends.hip import gemm_estimate
from tilewright.dtypes import DTYPES
from tilewright.ops import ck_tile_shape as shape
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.amd_copies import WRITTEN, copied, copies
from tilewright.ops.conv.amd_schedules import CkTileConvSchedule
from tilewright.ops.conv.amd_shape import as_product, loads, residues
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.gemm.problem import GemmProblem

START = 5.0e-6
LOOP_RATE = 5.0e11  # products of the loops a second
WALKING = 1.05  # of a product whose rows are found pixel by pixel
LOADS_A_SECOND = 2.4e12  # of lanes, all compute units together
COPIED = 1.5e12  # bytes a second, read and written


def seconds(spec: KernelSpec, problem: ConvProblem) -> float:
    h, p = spec.schedule, problem
    if isinstance(h, LoopsSchedule):
        return START + p.flops / 2 / LOOP_RATE
    if h.special == "copied":
        larger = copied(h, p)
        return _copying(h, p, larger) + _computing(spec, larger)
    return _computing(spec, p)


def _copying(schedule: CkTileConvSchedule, problem: ConvProblem, larger: ConvProblem) -> float:
    """Seconds of a launch for each operand, and of its bytes."""
    size, result = (DTYPES[one].bytes for one in (problem.dtype, problem.dtype_out))
    total = 0.0
    for one in copies(schedule, problem):
        bytes_of = result if one == WRITTEN[problem.variant] else size
        elements = prod(getattr(problem, f"{one}_shape")) + prod(getattr(larger, f"{one}_shape"))
        total += START + elements * bytes_of / COPIED
    return total


def _computing(spec: KernelSpec, problem: ConvProblem) -> float:
    h, p = spec.schedule, problem
    signature, schedule = as_product(spec.signature, h)
    m, n, k = p.gemm[0], p.gemm[1] * h.merged, p.gemm[2] * h.merged
    groups, classes = -(-p.groups // h.merged), 1
    if p.variant == "backward_data":  # a product for each residue, of its share of pixels and taps
        classes = residues(p)
        m, k = -(-m // classes), max(1, -(-k // classes))
    product = GemmProblem(
        m=m, n=n, k=k, batch=groups * classes, layout=signature.layout, dtype_a=p.dtype, dtype_b=p.dtype
    )
    found = gemm_estimate.seconds(KernelSpec("gemm", signature, schedule, spec.arch), product)
    walking = 1.0 if h.special == "pointwise" else WALKING
    return float(found * walking + _loading(spec, (m, n, k), groups * classes))


def _loading(spec: KernelSpec, sizes: tuple[int, int, int], batch: int) -> float:
    """Seconds of issuing more loads than the widest would be."""
    h = spec.schedule
    tiles = [-(-size // tile) for size, tile in zip(sizes, h.tile, strict=True)]
    size, total = shape.bytes_of(spec.signature.dtype), 0.0
    for lines, width in zip(h.tile[:2], loads(spec.signature, h), strict=True):
        each = lines * h.tile[2] * prod(tiles) * batch
        total += each / width - each * size / shape.NATIVE_BYTES
    return total / LOADS_A_SECOND
