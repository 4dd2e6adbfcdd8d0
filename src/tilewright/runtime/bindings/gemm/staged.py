"""A padded GEMM on a device: operands go into zero-padded, aligned copies in the stream's workspace.

Everything is queued on the current stream and nothing waits: fills, copies of rows, the kernel, and the
copy of the result.  So the call can be captured into a graph once it has run on the stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.runtime.bindings.gemm.plan import GemmPlan, dense_problem
from tilewright.runtime.bindings.gemm.request import Request, dense_request
from tilewright.runtime.devices import device
from tilewright.runtime.loader import Kernel

if TYPE_CHECKING:
    from tilewright.runtime.gpu import Gpu

ALIGNMENT = 256


def _up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Staged(NamedTuple):
    """One operand and its copy; strides and sizes in bytes, except `rows`, `columns` and `batch`."""

    offset: int  # of the copy in the workspace
    batch: int
    rows: int
    columns: int  # of the original
    padded_rows: int
    padded_columns: int  # of the copy, whose rows follow each other
    row_stride: int  # 0 repeats one row
    column_stride: int  # 0 repeats one element
    batch_stride: int  # 0 repeats one matrix
    size: int  # of an element

    @property
    def pitch(self) -> int:
        return self.padded_columns * self.size

    @property
    def matrix(self) -> int:
        return self.padded_rows * self.pitch

    @property
    def nbytes(self) -> int:
        return self.batch * self.matrix

    @property
    def whole(self) -> bool:
        return (self.rows, self.columns) == (self.padded_rows, self.padded_columns)


def _repeat(gpu: Gpu, at: int, pitch: int, step: int, count: int, width: int, rows: int) -> None:
    """Fill `count` places `step` bytes apart with the first, twice as many with each copy.

    A place is `rows` rows of `width` bytes, `pitch` bytes apart.
    """
    done = 1
    while done < count:
        more = min(done, count - done)
        if step < pitch:  # places beside each other: the rows grow
            gpu.copy_rows(at + done * step, pitch, at, pitch, (more - 1) * step + width, rows)
        else:  # places below each other: there are more rows
            gpu.copy_rows(at + done * step, step, at, step, width, more)
        done += more


def stage(gpu: Gpu, one: Staged, base: int, source: int) -> int:
    """Queue the copy of an operand; its address."""
    at = base + one.offset
    if not one.whole:
        gpu.fill(at, 0, one.nbytes)
    if not one.rows or not one.columns:
        return at
    rows = one.rows if one.row_stride else 1
    columns = one.columns if one.column_stride else 1
    for index in range(one.batch):
        target = at + index * one.matrix
        gpu.copy_rows(target, one.pitch, source + index * one.batch_stride, one.row_stride, columns * one.size, rows)
        if columns < one.columns:
            _repeat(gpu, target, one.pitch, one.size, one.columns, one.size, rows)
        if rows < one.rows:
            _repeat(gpu, target, one.pitch, one.pitch, one.rows, one.columns * one.size, 1)
    return at


def unstage(gpu: Gpu, one: Staged, base: int, target: int) -> None:
    """Queue the copy of the result out of its padded buffer."""
    for index in range(one.batch):
        gpu.copy_rows(
            target + index * one.batch_stride,
            one.row_stride,
            base + one.offset + index * one.matrix,
            one.pitch,
            one.columns * one.size,
            one.rows,
        )


class StagedGemmPlan(GemmPlan):
    """A plan whose kernel runs on copies: one without edge code, or one that needs aligned operands."""

    __slots__ = ("_ds", "_gpu", "_left", "_old", "_outer", "_result", "_right", "_total")

    def __init__(self, kernel: Kernel, request: Request, padded: GemmProblem, threads: int) -> None:
        # The copies are dense, so the inner call has the padded problem's own strides.
        inner = replace(dense_request(dense_problem(padded)), place=request.place)
        super().__init__(kernel, inner, threads)
        self._outer = self.request = request
        self.shape, self.swapped, self.column_major = request.shape, False, request.column_major
        if request.swapped:
            self.size_a, self.size_b = self.size_b, self.size_a
        self._gpu = cast("Gpu", device(request.place))
        p, q, args = request.problem, inner.problem, request.args
        self._total = _up(self.scratch_bytes)

        def matrix(
            letter: str, size: tuple[int, int], to: tuple[int, int], strides: tuple[int, int, int], dtype: str
        ) -> Staged:
            if letter == "c":
                size, to = (size[1], size[0]), (to[1], to[0])
            row, column, batch = (stride * DTYPES[dtype].bytes for stride in strides)
            made = Staged(self._total, p.batch, *size, *to, row, column, batch, DTYPES[dtype].bytes)
            self._total += _up(made.nbytes)
            return made

        self._left = matrix(p.layout[0], (p.m, p.k), (q.m, q.k), (args.a_stride, 1, args.a_batch_stride), p.dtype_a)
        self._right = matrix(p.layout[1], (p.k, p.n), (q.k, q.n), (args.b_stride, 1, args.b_batch_stride), p.dtype_b)
        outer, larger = (p.m, p.n), (q.m, q.n)
        self._old = matrix("r", outer, larger, (args.c_stride, 1, args.c_batch_stride), p.dtype_c) if p.beta else None
        self._ds = [
            matrix(
                "r",
                outer,
                larger,
                (args.d_row_stride[index], args.d_col_stride[index], args.d_batch_stride[index]),
                p.dtype_d,
            )
            for index in range(p.num_d)
        ]
        self._result = matrix("r", outer, larger, (args.e_stride, 1, args.e_batch_stride), p.dtype_c)

    def __call__(self, a: int, b: int, c: int, ds: tuple[int, ...], e: int, alpha: float, beta: float) -> None:
        if self._outer.swapped:
            a, b = b, a
        gpu = self._gpu
        with gpu.scratch(self._total, self.kernel) as base:
            super().__call__(
                stage(gpu, self._left, base, a),
                stage(gpu, self._right, base, b),
                stage(gpu, self._old, base, c) if self._old is not None else 0,
                tuple(stage(gpu, one, base, address) for one, address in zip(self._ds, ds, strict=True)),
                base + self._result.offset,
                alpha,
                beta,
            )
            unstage(gpu, self._result, base, e)
