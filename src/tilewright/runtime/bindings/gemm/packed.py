"""B packed once for preshuffle kernels, then used in place of b any number of times."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.errors import ProblemError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.legality import pack_format
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.runtime import host
from tilewright.runtime.arrays import View, view
from tilewright.runtime.bindings.gemm.plan import copy_args, demand_runnable
from tilewright.runtime.bindings.gemm.request import MATHS, PackedShape, Request, dense_request, input_layout
from tilewright.runtime.devices import HOST, device
from tilewright.runtime.loader import Kernel


class PackedB:
    """The packed form of a B: sizes, element types and the format its bytes are in."""

    __slots__ = ("_memory", "address", "dtype_a", "format", "key", "nbytes", "shape", "spec")

    def __init__(self, kernel: Kernel, shape: PackedShape, memory: object, address: int, nbytes: int) -> None:
        self.spec = kernel.spec
        self.format = pack_format(kernel.spec)
        self.shape = shape
        self.dtype_a = str(kernel.spec.signature.dtype_a)
        self.address = address
        self.nbytes = nbytes
        self._memory = memory
        self.key = (self.format, shape.k, shape.n, shape.batch, shape.repeated, shape.layout, shape.place)

    def __repr__(self) -> str:
        one = self.shape
        batch = f"{one.batch}x" if one.batch else ""
        return f"<PackedB {batch}{one.k}x{one.n} {one.dtype} for {self.dtype_a} inputs, {self.nbytes} bytes>"

    def refuses(self) -> Callable[[KernelSpec], str]:
        """Why a kernel cannot read these bytes; empty when it can."""
        mine = self.format

        def why(spec: KernelSpec) -> str:
            return "" if pack_format(spec) == mine else "reads B packed in another format"

        return why

    def demand(self, a: View, math: str = "") -> None:
        """Raise where b was packed for other inputs than an `a` that is multiplied as `math` (as what it is)."""
        asked = math or a.dtype
        if asked != self.dtype_a:
            other = f"give math={self.dtype_a!r}" if self.dtype_a in MATHS else f"convert a to {self.dtype_a}"
            raise ProblemError(
                f"b was packed for {self.dtype_a} inputs, and a "
                + (f"is to be multiplied as {math}" if math else f"holds {a.dtype}"),
                rule="packed-dtype",
                value=asked,
                remedy=f"pack again with tilewright.pack(b, dtype_a={asked!r}), or {other}",
            )


def pack(kernel: Kernel, request: Request, b: View, threads: int) -> PackedB:
    """Run the kernel's packing on a B."""
    demand_runnable(kernel.spec.arch)
    args = copy_args(request.args)
    args.b = b.address
    nbytes = kernel.packed_bytes(args)
    assert kernel.pack is not None  # packed_bytes refused otherwise
    memory: object
    if b.place is HOST:
        memory, address = host.aligned_buffer(max(1, nbytes))
        stream = host.team(threads)
    else:
        where = device(b.place)
        where.demand_arch(kernel.spec.arch)
        held = where.allocate(nbytes)
        memory, address, stream = held, held.address, where.stream()
    status = kernel.pack(ctypes.addressof(args), address, stream)
    if status:
        raise kernel.failed(status)
    p = request.problem
    batch = b.shape[0] if len(b.shape) == 3 else 0
    shape = PackedShape(p.k, p.n, batch, p.broadcast_b, p.dtype_b, p.layout[1], b.place)
    return PackedB(kernel, shape, memory, address, nbytes)


def pack_with(planner: Any, array: Any, m: int, dtype_a: str | None) -> PackedB:
    """Choose a preshuffle kernel for a B that will meet A of about m rows, and pack with it."""
    b = view("b", array, planner.kind)
    if len(b.shape) not in (2, 3):
        raise ProblemError(
            f"b has {len(b.shape)} dimensions, and a matrix has 2, a batch of them 3",
            rule="array-rank",
            value=b.shape,
            remedy="give b as (k, n) or (batch, k, n)",
        )
    letter, stride = input_layout(b)
    k, n = b.shape[-2:]
    batch = b.shape[0] if len(b.shape) == 3 else 1
    broadcast = batch > 1 and b.strides[0] == 0
    problem = GemmProblem(
        m=m,
        n=n,
        k=k,
        dtype_a=dtype_a or b.dtype,
        dtype_b=dtype_a if dtype_a in MATHS and b.dtype == "fp32" else b.dtype,  # such values are rounded fp32
        layout=f"r{letter}r",
        batch=batch,
        preshuffled=True,
        b_stride=stride,
        broadcast_b=broadcast,
    )
    request = dense_request(problem)
    request.args.b_batch_stride = 0 if batch == 1 else b.strides[0]
    # Of a B without k nothing is packed: any kernel of its format does that.
    kernel = planner.kernel(planner.select(problem if k else replace(problem, k=1)).spec)
    return pack(kernel, request, b, host.thread_count())
