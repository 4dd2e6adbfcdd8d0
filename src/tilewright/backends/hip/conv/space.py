"""Convolution on AMD GPUs: what is legal, and what a legal kernel was not made for.

compv3, compv4, mem   CDNA: the matrix product of GEMM's CK Tile kernels with another way in.  Rows are pixels, k taps
                      and channels, found by the lanes themselves; groups are a batch.  Channels side by side, or,
                      `copied`, any memory and channels in copies that the kernel makes in its workspace
wmma, fma             RDNA 3 and 4: the same by a product of our own, for CK Tile's headers have none there
loops                 the floor: any size, stride and element type, on every GPU
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.arch import Arch
from tilewright.backends.hip import ck_tile_rules as product_rules
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.conv import copies as amd_copies
from tilewright.backends.hip.conv.schedules import CkTileConvSchedule, FastSchedule, schedules
from tilewright.backends.hip.conv.shape import (
    as_product,
    even,
    lane_vectors,
    loads,
    multiplied,
    native_store,
    residues,
    threads,
    walking_registers,
)
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.backends.hip.conv.tiled import rules as tiled_rules
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule, LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules

__all__ = ["RULES", "SCHEDULES", "ck_tile_rules", "generic_schedule", "limits", "schedules", "signature_rules"]

USUAL = "fp16"
SCHEDULES: tuple[type[ConvSchedule], ...] = (CkTileConvSchedule, TiledConvSchedule, LoopsSchedule)
MAX_BYTES = product_rules.MAX_BYTES  # offsets inside an operand are 32-bit
MAX_SIZE = 1 << 30
MAX_THREADS = product_rules.MAX_THREADS
MAX_GROUPS = (1 << 16) - 1
MAX_RESIDUES = 512
_REMEDY = "use another kernel of the pool"


def signature_rules(signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from dtype_rules(signature)


def ck_tile_rules(signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
    """Which products CK Tile's headers have on the arch."""
    yield from product_rules.ck_tile_rules(multiplied(signature), arch)


def _signature(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _product(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    """What the matrix product allows."""
    if not isinstance(schedule, CkTileConvSchedule) or next(dtype_rules(signature), None) is not None:
        return
    yield from ck_tile_rules(signature, arch)
    yield from product_rules.instance_rules(*as_product(signature, schedule), arch)


def _vectors(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, CkTileConvSchedule) or not product_rules.is_whole(as_product(signature, schedule)[1]):
        return
    for what, width, most in zip("AB", schedule.vectors, lane_vectors(signature, schedule), strict=False):
        if width & (width - 1) or width * shape.bytes_of(signature.dtype) > shape.NATIVE_BYTES:
            widest = shape.NATIVE_BYTES // shape.bytes_of(signature.dtype)
            yield Violation("amd-vector", f"{what} is read {width} at a time", f"use a power of two up to {widest}")
        elif width > most:
            message = f"{what} is read {width} at a time, and a lane has {most} neighbours of its tile"
            yield Violation("amd-vector", message, f"use {most}, or a larger tile")
    stored, widest = schedule.vectors[2], native_store(signature, schedule)
    if stored & (stored - 1) or stored > widest:
        message = f"{stored} results leave at a time by the {schedule.store} store"
        yield Violation("amd-vector", message, f"use a power of two up to {widest}")


def _split(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, FastSchedule) and schedule.split_k > 1 and signature.variant != "backward_weight":
        message = f"split_k {schedule.split_k} of {signature.variant}: its k is short"
        yield Violation("amd-split-k", message, "use split_k 1, or backward_weight")


def _registers(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    """Beside what the product takes: where a lane reads."""
    if (
        not isinstance(schedule, CkTileConvSchedule)
        or not product_rules.is_whole(as_product(signature, schedule)[1])
        or not arch.accumulator_registers
    ):
        return
    product = as_product(signature, schedule)
    held = shape.registers(*product) + walking_registers(signature, schedule)
    room = product_rules.register_room(product[1], arch)
    if held > room and shape.registers(*product) <= room:  # else the product's rule has said it
        tile = "x".join(map(str, schedule.tile))
        message = (
            f"tile {tile} with vectors {schedule.vectors[:2]} wants {held} registers of a lane; over {room} it spills"
        )
        yield Violation("amd-registers", message, "use a smaller tile, more waves or wider vectors")


def _merging(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, FastSchedule) and schedule.merged > 1 and signature.variant == "backward_weight":
        message = (
            f"merged {schedule.merged} of backward_weight: filters of a group have no gradients of another's channels"
        )
        yield Violation("amd-merged", message, "use merged 1")


RULES = (_signature, _product, _vectors, _split, _merging, _registers, tiled_rules)


def limits(schedule: ConvSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same (hip/conv.h)."""
    if not isinstance(schedule, FastSchedule) or (not problem.batch and problem.variant != "backward_weight"):
        return
    if schedule.special == "copied":
        broken = list(amd_copies.copied_limits(schedule, problem))
        yield from broken
        if broken:
            return
        problem = amd_copies.copied(schedule, problem)
    if not problem.channels_last:
        yield Violation("amd-channels-last", "channels do not lie side by side", _REMEDY)
        return
    if min((*problem.x_strides, *problem.w_strides, *problem.y_strides)) < 0:
        yield Violation("amd-strides", "an operand is laid out backwards", _REMEDY)
        return
    if problem.groups % schedule.merged:
        message = f"{problem.groups} groups are no multiple of the {schedule.merged} that are merged"
        yield Violation("amd-merged", message, _REMEDY)
        return
    yield from _layout(schedule, problem)
    yield from _reads(schedule, problem)
    yield from _sizes(schedule, problem)


def _layout(schedule: FastSchedule, problem: ConvProblem) -> Iterator[Violation]:
    p = problem
    if p.variant != "backward_data" and (
        p.w_strides[-2] != p.group_channels or not even(p.w_strides, (1, *p.w_shape[1:]))
    ):
        yield Violation("amd-dense", "the taps of a filter do not lie side by side", _REMEDY)
    if p.variant == "backward_weight" and not even(p.y_strides, p.y_shape):
        yield Violation("amd-dense", "the pixels of y do not lie at equal distances", _REMEDY)
    if schedule.special != "pointwise":
        return
    if {*p.window, *p.stride} != {1} or any(p.before) or p.out != p.size:
        message = "the kernel is for windows of one tap, without stride or padding"
        yield Violation("amd-pointwise", message, _REMEDY)
    elif not even(*((p.y_strides, p.y_shape) if p.variant == "backward_data" else (p.x_strides, p.x_shape))):
        yield Violation("amd-dense", "the pixels that are read do not lie at equal distances", _REMEDY)


def _reads(schedule: FastSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Operands are read in whole accesses only; the result and D tensors may lie as they like."""
    p = problem
    a, b = loads(p.signature, schedule)
    x = ("x", p.group_channels * schedule.merged, p.x_strides[:-1])
    y = ("y", p.group_filters * schedule.merged, p.y_strides[:-1])
    # forward reads a filter as one row; of merged groups a tap of it.
    w = ("w", p.group_channels, p.w_strides[:-1])
    row = ("w", p.group_channels * (prod(p.window) if schedule.merged == 1 else 1), p.w_strides[:1])
    of_a, of_b = {"forward": (x, row), "backward_data": (y, w), "backward_weight": (y, x)}[p.variant]
    for (what, extent, strides), width in ((of_a, a), (of_b, b)):
        if width > 1 and not p.aligned:
            message = f"an operand's address is no multiple of 16 bytes, and {what} is read {width} elements at a time"
            yield Violation("amd-alignment", message, "align it, or use a kernel with narrower vectors")
        if extent % width or any(one % width for one in strides):
            message = (
                f"{what} is read {width} elements at a time; {extent} of them and strides {strides} are no multiples"
            )
            yield Violation("amd-alignment", message, "use a kernel with narrower vectors")


def _sizes(schedule: FastSchedule, problem: ConvProblem) -> Iterator[Violation]:
    p, size = problem, shape.bytes_of(problem.dtype)
    of_x, of_y = p.group_channels * schedule.merged, p.group_filters * schedule.merged
    for name, channels in (("x", of_x), ("w", p.group_channels), ("y", of_y)):
        counts = (of_y, *p.window) if name == "w" else getattr(p, f"{name}_shape")[:-1]
        pairs = zip(counts, getattr(p, f"{name}_strides")[:-1], strict=True)
        span = (sum((count - 1) * stride for count, stride in pairs) + channels) * size
        if name != p.written and span >= MAX_BYTES:
            message = f"{name} of one group spans {span} bytes, and offsets are 32-bit"
            yield Violation("amd-operand-size", message, "split the problem")
    reach = [
        max(pixels + before, window * dilation, out * stride)
        for pixels, before, window, dilation, out, stride in zip(
            p.size, p.before, p.window, p.dilation, p.out, p.stride, strict=True
        )
    ]
    m, n, k = p.gemm[0], p.gemm[1] * schedule.merged, p.gemm[2] * schedule.merged
    if max(*reach, m, n, k) >= MAX_SIZE:
        message = f"rows, columns, depth ({m}, {n}, {k}) or an axis of {max(reach)} pixels with its padding"
        yield Violation("amd-size", f"{message}: 2^30 and more are not counted", "split the problem")
        return
    tiles = -(-m // schedule.tile[0]) * -(-n // schedule.tile[1])
    if tiles * threads(p.signature, schedule) >= MAX_THREADS:
        yield Violation("amd-tiles", f"{tiles} tiles make a launch of 2^32 threads or more", _REMEDY)
    if p.groups // schedule.merged > MAX_GROUPS:
        yield Violation("amd-groups", f"{p.groups} groups, and a launch has at most {MAX_GROUPS}", _REMEDY)
    if p.variant == "backward_data" and residues(p) > MAX_RESIDUES:
        yield Violation("amd-residues", f"strides make more than {MAX_RESIDUES} residues of pixels", _REMEDY)


def remarks(schedule: ConvSchedule, problem: ConvProblem) -> list[str]:
    """Which copies a kernel makes."""
    if not isinstance(schedule, FastSchedule) or schedule.special != "copied" or problem.batch == 0:
        return []
    told = ", ".join(amd_copies.copies(schedule, problem))
    return [f"copies {told} to dense channels-last memory in its workspace, the result back"]


def generic_schedule(signature: ConvSignature, arch: Arch) -> ConvSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()
