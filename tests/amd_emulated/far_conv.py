"""Images, and rows of one image, so far apart that the gathered operand spans more than 2 GiB: several launches.

A process of its own, like the worker: spec, library, seed and which of both in, what is wrong out.  What is touched is
a few pages.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.amd_emulated.session import Session
from tilewright.dtypes import DTYPES
from tilewright.ops import op
from tilewright.ops.conv import ConvProblem
from tilewright.runtime.bindings.conv.args import ConvArgs
from tilewright.runtime.loader import Kernel, load_kernel

IMAGES_APART, ROWS_APART = 900 << 20, 300 << 20  # bytes
CHANNELS, FILTERS, SIZE = 8, 16, 12
EXPONENTS = {"fp16": (10, 15), "bf16": (7, 127)}  # bits of the fraction, and the bias


class Far:
    """Pixels in one mapping of which nearly no page exists."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        span = sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + 4096
        self.memory = mmap.mmap(-1, span)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.view: Any = np.ndarray(shape, np.uint16, self.memory, 0, strides)


def small_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """-2 to 2 as bits and as numbers: every sum is exact."""
    bits_of_fraction, bias = EXPONENTS[dtype]
    values = rng.integers(-2, 3, shape)
    exponent = np.where(np.abs(values) == 2, bias + 1, bias) << bits_of_fraction
    bits = np.where(values == 0, 0, exponent | (values < 0).astype(np.int64) << 15)
    return bits.astype(np.uint16), values.astype(np.float64)


def strides_of(shape: tuple[int, ...], rows_apart: bool, size: int) -> tuple[int, ...]:
    """Bytes from image to image, row to row, pixel to pixel, channel to channel."""
    pixel = shape[3] * size
    row = ROWS_APART if rows_apart else shape[2] * pixel
    return (row * shape[1] if rows_apart else IMAGES_APART), row, pixel, size


def convolved(x: Any, w: Any, stride: int, before: int, out: int) -> Any:
    """Forward, in float64: pixels outside are zero."""
    batch, size, _, _ = x.shape
    around = np.zeros((batch, size + 2 * before + 8, size + 2 * before + 8, x.shape[3]))
    around[:, before : before + size, before : before + size] = x
    y = np.zeros((batch, out, out, w.shape[0]))
    for r in range(w.shape[1]):
        for c in range(w.shape[2]):
            seen = around[:, r : r + out * stride : stride, c : c + out * stride : stride]
            y += seen[:, :out, :out] @ w[:, r, c].T
    return y


def prove(kernel: Kernel, seed: int, session: Any, rows_apart: bool) -> str:
    """What is wrong with a result in such memory; empty where it is right."""
    s, rng = kernel.spec.signature, np.random.default_rng(seed)
    size, data, weight = DTYPES[s.dtype].bytes, s.variant == "backward_data", s.variant == "backward_weight"
    batch, stride, before = (1, 2, 1) if rows_apart else (5, 1, 1)
    p = ConvProblem(
        batch, CHANNELS, FILTERS, (SIZE, SIZE), (3, 3), stride=(stride, stride), before=(before, before),
        variant=s.variant, dtype=s.dtype, dtype_out=s.dtype_out,
    )  # fmt: skip
    out = p.out[-1]
    shape_x, shape_y = (batch, SIZE, SIZE, CHANNELS), (batch, out, out, FILTERS)
    strides = [strides_of(shape, rows_apart, size) for shape in (shape_x, shape_y)]
    if weight:  # dense images of the result: such gradients are read evenly
        strides[1] = (out * strides[1][1], *strides[1][1:])
    x, y = (Far(shape, each) for shape, each in zip((shape_x, shape_y), strides, strict=True))
    w_bits, w = small_numbers(rng, (FILTERS, 3, 3, CHANNELS), s.dtype)
    gathered, shape = (y, shape_y) if data else (x, shape_x)
    bits, read = small_numbers(rng, shape, s.dtype)
    gathered.view[...] = bits
    y_bits, dy = small_numbers(rng, shape_y, s.dtype)
    if weight:
        y.view[...], w_bits[...] = y_bits, 0
    args = ConvArgs()
    fill(args, p, (x, y), strides, w_bits)
    refusal = kernel.refusal(args)
    if refusal:
        return f"refused: {refusal}"
    before_it = len(session.launches)
    workspace = np.zeros(max(1, kernel.workspace_bytes(args, 1)), np.uint8)
    status = kernel.launch(ctypes.addressof(args), workspace.ctypes.data, None)
    session.raise_failure()
    if status:
        return f"launch answered {status}"
    launches = len(session.launches) - before_it
    if weight:
        wanted = summed(read, dy, stride, before)
    else:
        wanted = turned(read, w, stride, before) if data else convolved(read, w, stride, before, out)
    found = numbers(w_bits if weight else (x if data else y).view, s.dtype)
    if weight and s.dtype == "bf16":
        wanted = numbers(rounded(wanted), s.dtype)
    if launches < 2:
        return f"{launches} launch of what spans more than 2 GiB"
    return "" if np.array_equal(found, wanted) else f"{(found != wanted).sum()} of {wanted.size} elements differ"


def turned(dy: Any, w: Any, stride: int, before: int) -> Any:
    """backward_data, in float64."""
    batch, out, _, _ = dy.shape
    far = SIZE + 2 * before + 8
    dx = np.zeros((batch, far, far, CHANNELS))
    for r in range(3):
        for c in range(3):
            dx[:, r : r + out * stride : stride, c : c + out * stride : stride][:, :out, :out] += dy @ w[:, r, c]
    return dx[:, before : before + SIZE, before : before + SIZE]


def summed(x: Any, dy: Any, stride: int, before: int) -> Any:
    """backward_weight, in float64."""
    around, out = np.pad(x, ((0, 0), (before, before + 8), (before, before + 8), (0, 0))), dy.shape[1]
    dw = np.zeros((FILTERS, 3, 3, CHANNELS))
    for r in range(3):
        for c in range(3):
            seen = around[:, r : r + out * stride : stride, c : c + out * stride : stride][:, :out, :out]
            dw[:, r, c] = np.einsum("nhwc,nhwk->kc", seen, dy)
    return dw


def rounded(values: Any) -> Any:
    """Bits of bf16, to the nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def numbers(bits: Any, dtype: str) -> Any:
    bits = np.ascontiguousarray(bits)
    if dtype == "fp16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def fill(args: Any, p: ConvProblem, memory: tuple[Far, Far], strides: list[tuple[int, ...]], w_bits: Any) -> None:
    """As the runtime does, with two spatial axes behind one of a single pixel."""
    size = DTYPES[p.dtype].bytes
    args.batch, args.groups, args.channels, args.filters = p.batch, 1, CHANNELS, FILTERS
    for axis in range(3):
        args.size[axis] = 1 if axis == 0 else SIZE
        args.window[axis] = 1 if axis == 0 else 3
        args.stride[axis], args.dilation[axis] = (1, 1) if axis == 0 else (p.stride[-1], 1)
        args.before[axis] = 0 if axis == 0 else p.before[-1]
        args.out[axis] = 1 if axis == 0 else p.out[-1]
    for name, far, each in zip("xy", memory, strides, strict=True):
        image, row, pixel, _ = (one // size for one in each)
        setattr(args, name, far.address)
        getattr(args, f"{name}_strides")[:] = (image, 0, row, pixel, 1)
    args.w = w_bits.ctypes.data
    args.w_strides[:] = (9 * CHANNELS, 9 * CHANNELS, 3 * CHANNELS, CHANNELS, 1)


def main() -> None:
    request = json.loads(sys.stdin.read())
    spec = op("conv").spec_from_dict(request["spec"])
    session = Session(spec.arch, request["seed"])  # before any library is loaded
    kernel = load_kernel(Path(request["library"]), spec)
    sys.stdout.write(prove(kernel, request["seed"], session, request["rows_apart"]))


if __name__ == "__main__":
    main()
