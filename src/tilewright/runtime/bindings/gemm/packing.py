"""Packing a B for preshuffle kernels."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

from tilewright.backends.base import demand_runnable
from tilewright.dtypes import dtype
from tilewright.errors import ProblemError, counted, shown
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.runtime import host
from tilewright.runtime.arrays import View, view
from tilewright.runtime.bindings import Planner
from tilewright.runtime.bindings.gemm.dense import dense
from tilewright.runtime.bindings.gemm.operands import B, PackedShape, matrix
from tilewright.runtime.bindings.gemm.packed import PackedB
from tilewright.runtime.bindings.gemm.request import MATHS, demand_multiplied, knows_math
from tilewright.runtime.copies import CopyNeeded
from tilewright.runtime.devices import HOST, device
from tilewright.runtime.loader import Kernel
from tilewright.runtime.plans import copy_args


def pack(kernel: Kernel, problem: GemmProblem, template: Any, b: View, threads: int) -> PackedB:
    """Run the kernel's packing on a B; `template` has its strides."""
    demand_runnable(kernel.spec.arch)
    args = copy_args(template)
    args.b = b.address
    nbytes = kernel.packed_bytes(args)
    assert kernel.pack is not None  # packed_bytes refused otherwise
    status, empty = 0, 0 in b.shape  # of nothing there may be more panels than anyone can count
    if b.place is HOST:
        memory, address = host.aligned_buffer(max(1, nbytes))
        status = 0 if empty else kernel.pack(ctypes.addressof(args), address, host.team(threads))
    else:
        where = device(b.place)
        where.demand_arch(kernel.spec.arch)
        held = where.allocate(nbytes)
        memory, address = held, held.address
        with where.scratch(0) as (_, stream):
            status = 0 if empty else kernel.pack(ctypes.addressof(args), address, stream)
    if status:
        raise kernel.failed(status)
    batch = b.shape[0] if len(b.shape) == 3 else None
    shape = PackedShape(problem.k, problem.n, batch, problem.broadcast_b, problem.dtype_b, problem.layout[1], b.place)
    return PackedB(kernel, shape, memory, address, nbytes)


def pack_with(planner: Planner, array: Any, m: int, dtype_a: str | None) -> PackedB:
    """Choose a preshuffle kernel for products of this B and A of about m rows, and pack with it."""
    try:
        return _pack_with(planner, array, m, dtype_a)
    except CopyNeeded as error:  # packing is asked for no copies
        raise error.refused(f"give a copy: {error.how}") from None


def _pack_with(planner: Planner, array: Any, m: int, dtype_a: str | None) -> PackedB:
    if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m < 1 << 63:
        raise ProblemError(
            f"m is {shown(m)}", rule="pack-rows", value=shown(m), remedy="give the number of rows A will have"
        )
    b = view("b", array, planner.kind)
    if len(b.shape) not in (2, 3):
        raise ProblemError(
            f"b has {counted(len(b.shape), 'dimension')}, and a matrix has 2, a batch of them 3",
            rule="array-rank",
            value=b.shape,
            remedy="give b as (k, n) or (batch, k, n)",
        )
    demand_multiplied(b)
    as_a = b.dtype if dtype_a is None else dtype(dtype_a).name
    if as_a in MATHS and not knows_math(as_a, planner.target):
        as_a = "fp32"  # exact where the target knows no such math
    letter, stride = matrix(B, b, b.shape).layout()
    k, n = b.shape[-2:]
    batch = b.shape[0] if len(b.shape) == 3 else 1
    problem = GemmProblem(
        m=m,
        n=n,
        k=k,
        dtype_a=as_a,
        dtype_b=as_a if as_a in MATHS and b.dtype == "fp32" else b.dtype,  # such values are rounded fp32
        layout=f"r{letter}r",
        batch=batch,
        preshuffled=True,
        b_stride=stride,
        broadcast_b=batch > 1 and b.strides[0] == 0,
    )
    args: Any = dense(problem).stages[0].args
    args.b_batch_stride = 0 if batch == 1 else b.strides[0]
    # Of a B without k nothing is packed: any kernel of its format does that.
    kernel = planner.kernel_for(problem if k else replace(problem, k=1))
    return pack(kernel, problem, args, b, host.thread_count())
