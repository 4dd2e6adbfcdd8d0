"""A GEMM plan: one kernel, one set of shapes and strides; a call only patches pointers and scalars."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.errors import DeviceError, ProblemError, TilewrightError
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.runtime import arrays, host
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.bindings.gemm.request import Request, dense_request
from tilewright.runtime.devices import HOST, Launch, device
from tilewright.runtime.loader import Kernel
from tilewright.runtime.numpy_types import numpy_dtype

_addressof = ctypes.addressof


def copy_args(args: GemmArgs) -> GemmArgs:
    return GemmArgs.from_buffer_copy(args)


class GemmPlan:
    """Call it with addresses: A, B, C, the Ds and E as the user names them, then the scalars.

    Argument structs are taken from a free list and put back, so any number of threads may be inside
    one plan.  `selection` is what the registry said when it chose the kernel.
    """

    __slots__ = (
        "_aligned_d", "_copied", "_free", "_launch", "_stream", "_workspace", "args", "column_major", "dtype",
        "dtype_name", "kernel", "num_d", "place", "reach", "request", "scratch_bytes", "selection", "shape", "size_a",
        "size_b", "size_c", "size_d", "swapped", "threads", "use_c",
    )  # fmt: skip

    def __init__(self, kernel: Kernel, request: Request, threads: int) -> None:
        self.kernel = kernel
        self.request = request
        self.threads = threads
        self.selection: Any = None
        self.args = copy_args(request.args)
        self.swapped = request.swapped
        self.use_c = request.problem.beta
        self.num_d = request.problem.num_d
        self.shape = request.shape
        self.dtype_name = request.dtype
        self.dtype = numpy_dtype(request.dtype)
        self.column_major = request.column_major
        p = request.problem
        sizes = DTYPES[p.dtype_a].bytes, DTYPES[p.dtype_b].bytes
        self.size_a, self.size_b = reversed(sizes) if self.swapped else sizes
        self.size_c, self.size_d = DTYPES[p.dtype_c].bytes, DTYPES[p.dtype_d].bytes
        self.reach: Any = None  # byte extents of the operands, set by the caller who has the views
        self._free: list[tuple[GemmArgs, int]] = []
        self.place = request.place
        self._launch: Launch = kernel.launch
        self._stream = host.team(threads) if self.place is HOST else 0
        probe = copy_args(self.args)
        # Check and workspace may look at pointers' presence, never at what they point to.
        # A kernel may need more of it for operands that start at odd places: then they do so here.
        probe.a = probe.b = probe.e = host.ALIGNMENT
        if not p.aligned:
            probe.a += DTYPES[p.dtype_a].bytes
            probe.b += 0 if p.preshuffled else DTYPES[p.dtype_b].bytes  # what we packed starts where we want it
            probe.e += self.size_c
        if self.use_c:
            probe.c, probe.beta = host.ALIGNMENT, 1.0
        for index in range(self.num_d):
            probe.d[index] = host.ALIGNMENT
        probe.alpha = 1.0
        kernel.demand(probe)
        self._workspace = self.scratch_bytes = kernel.workspace_bytes(probe, threads)
        self._copied: GemmPlan | None = None
        self._aligned_d = False
        if self.place is not HOST:
            if self.num_d:
                probe.d[0] = host.ALIGNMENT + self.size_d
                self._aligned_d = bool(kernel.refusal(probe))
            # The device has its own workspace and the stream of the moment.
            self._launch, self._workspace = device(self.place).launcher(kernel, self._workspace), 0

    def apart(self, a: int, b: int, c: int, ds: tuple[int, ...], e: int) -> bool:
        """True when address ranges alone show that E meets no operand (or is exactly C)."""
        (a_low, a_high), (b_low, b_high), (c_low, c_high), of_ds, (low, high), alike = self.reach
        low, high = e + low, e + high
        if (a + a_low < high and low < a + a_high) or (b + b_low < high and low < b + b_high):
            return False
        if c and c + c_low < high and low < c + c_high and not (c == e and alike):
            return False
        return not any(d + d_low < high and low < d + d_high for d, (d_low, d_high) in zip(ds, of_ds, strict=True))

    def _in_copies(self) -> GemmPlan:
        """The same with copies of the operands: for D tensors that start where the kernel cannot read them."""
        if self._copied is None:
            from tilewright.ops.gemm.legality import padded

            larger = padded(self.kernel.spec, replace(self.request.problem, plain_d=False))
            if larger is None:
                raise ProblemError(
                    f"{self.kernel.name} reads D tensors at multiples of 16 bytes, and one starts elsewhere",
                    rule="d-alignment",
                    value=self.kernel.name,
                    remedy="give D tensors that start at a multiple of 16 bytes",
                )
            self._copied = prepare(self.kernel, self.request, self.threads, larger)
        return self._copied

    def __call__(self, a: int, b: int, c: int, ds: tuple[int, ...], e: int, alpha: float, beta: float) -> None:
        if self._aligned_d and any(one % 16 for one in ds):
            return self._in_copies()(a, b, c, ds, e, alpha, beta)
        try:
            args, address = self._free.pop()
        except IndexError:
            args = copy_args(self.args)
            address = _addressof(args)
        if self.swapped:
            args.a, args.b = b, a
        else:
            args.a, args.b = a, b
        args.e = e
        try:
            args.alpha = alpha
            if self.use_c:
                args.c, args.beta = c, beta
        except (TypeError, OverflowError):
            raise bad_scalar(alpha, beta) from None
        if ds:
            slots = args.d
            for index, one in enumerate(ds):
                slots[index] = one
        scratch = host.workspace(self._workspace) if self._workspace else None
        status = self._launch(address, scratch, self._stream)
        if status:
            raise self.kernel.failed(status)
        self._free.append((args, address))
        return None


def bad_scalar(alpha: object, beta: object) -> ProblemError:
    return ProblemError(
        f"alpha {alpha!r} and beta {beta!r} must be real numbers",
        rule="scalar",
        value=(str(alpha), str(beta)),
        remedy="give floats",
    )


class PaddedGemmPlan(GemmPlan):
    """The same for a kernel without edge code: operands go into zero-padded buffers, the result is cut out."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, kernel: Kernel, request: Request, padded: GemmProblem, threads: int) -> None:
        self._outer = request
        # Padded buffers are dense, so the inner call has the padded problem's own strides.
        inner = dense_request(dense_problem(padded))
        super().__init__(kernel, inner, threads)
        self._inner = inner.problem
        self.request = request
        self.shape, self.swapped, self.column_major = request.shape, False, request.column_major
        if request.swapped:
            self.size_a, self.size_b = self.size_b, self.size_a

    def __call__(self, a: int, b: int, c: int, ds: tuple[int, ...], e: int, alpha: float, beta: float) -> None:
        p, q, args = self._outer.problem, self._inner, self._outer.args
        if self._outer.swapped:
            a, b = b, a
        left = _padded_copy(
            a, p.layout[0], (p.m, p.k), (q.m, q.k), args.a_stride, args.a_batch_stride, p.batch, p.dtype_a
        )
        right = _padded_copy(
            b, p.layout[1], (p.k, p.n), (q.k, q.n), args.b_stride, args.b_batch_stride, p.batch, p.dtype_b
        )
        bias = None
        if p.beta:
            bias = _padded_copy(c, "r", (p.m, p.n), (q.m, q.n), args.c_stride, args.c_batch_stride, p.batch, p.dtype_c)
        extra = [
            _padded(
                _strided(
                    one,
                    (p.batch, p.m, p.n),
                    (args.d_batch_stride[index], args.d_row_stride[index], args.d_col_stride[index]),
                    p.dtype_d,
                ),
                (p.batch, q.m, q.n),
            )
            for index, one in enumerate(ds)
        ]
        result = np.empty((p.batch, q.m, q.n), numpy_dtype(p.dtype_c))
        address = arrays.address_of
        super().__call__(
            address(left),
            address(right),
            address(bias) if bias is not None else 0,
            tuple(address(one) for one in extra),
            address(result),
            alpha,
            beta,
        )
        target = _strided(e, (p.batch, p.m, p.n), (args.e_batch_stride, args.e_stride, 1), p.dtype_c)
        np.copyto(target, result[:, : p.m, : p.n])


def dense_problem(problem: GemmProblem) -> GemmProblem:
    return replace(problem, a_stride=0, b_stride=0, c_stride=0, broadcast_a=False, broadcast_b=False)


def _strided(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
) -> np.ndarray[Any, np.dtype[Any]]:
    return View("operand", address, shape, strides, dtype, True, None).numpy()


def _padded(source: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    padded = np.zeros(shape, source.dtype)
    padded[tuple(slice(size) for size in source.shape)] = source
    return padded


def _padded_copy(
    address: int,
    letter: str,
    size: tuple[int, int],
    padded: tuple[int, int],
    stride: int,
    batch_stride: int,
    batch: int,
    dtype: str,
) -> np.ndarray[Any, Any]:
    """Rows stay rows and columns stay columns: the copy has the layout of the original."""
    if letter == "c":
        size, padded = (size[1], size[0]), (padded[1], padded[0])
    return _padded(_strided(address, (batch, *size), (batch_stride, stride, 1), dtype), (batch, *padded))


def prepare(kernel: Kernel, request: Request, threads: int, padded: GemmProblem | None = None) -> GemmPlan:
    """A plan for this kernel; a kernel of an arch this machine lacks is refused."""
    demand_runnable(kernel.spec.arch)
    if padded is None:
        return GemmPlan(kernel, request, threads)
    if request.place is not HOST:
        from tilewright.runtime.bindings.gemm.staged import StagedGemmPlan

        return StagedGemmPlan(kernel, request, padded, threads)
    return PaddedGemmPlan(kernel, request, padded, threads)


def demand_runnable(arch: str) -> None:
    error = not_runnable(arch)
    if error is not None:
        raise error


def not_runnable(arch: str) -> TilewrightError | None:
    from tilewright.arch import arch as facts
    from tilewright.backends.base import backend

    found = backend(facts(arch).backend)
    if arch in found.available_archs():
        return None
    have = ", ".join(found.available_archs())
    return DeviceError(
        f"kernels of {arch} do not run on this machine",
        rule="arch-not-runnable",
        value=arch,
        remedy=f"this machine runs {have}" if have else found.why_unavailable(),
    )
