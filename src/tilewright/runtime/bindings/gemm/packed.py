"""B packed once for preshuffle kernels, then used in place of b any number of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import ProblemError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.legality import pack_format
from tilewright.runtime import host
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings.gemm.plan import copy_args, demand_runnable
from tilewright.runtime.bindings.gemm.request import PackedShape, Request
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
        self.key = (self.format, shape.k, shape.n, shape.batch, shape.layout)

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

    def demand(self, a: View) -> None:
        if a.dtype != self.dtype_a:
            raise ProblemError(
                f"b was packed for {self.dtype_a} inputs, and a holds {a.dtype}",
                rule="packed-dtype",
                value=a.dtype,
                remedy=f"pack again with tilewright.pack(b, dtype_a={a.dtype!r}), or convert a to {self.dtype_a}",
            )


def pack(kernel: Kernel, request: Request, b: View, threads: int) -> PackedB:
    """Run the kernel's packing on a B."""
    demand_runnable(kernel.spec.arch)
    args = copy_args(request.args)
    args.b = b.address
    nbytes = kernel.packed_bytes(args)
    assert kernel.pack is not None  # packed_bytes refused otherwise
    memory, address = host.aligned_buffer(max(1, nbytes))
    status = kernel.pack(_address(args), address, host.team(threads))
    if status:
        raise kernel.failed(status)
    p = request.problem
    batch = b.shape[0] if len(b.shape) == 3 else 0
    return PackedB(kernel, PackedShape(p.k, p.n, batch, p.dtype_b, p.layout[1]), memory, address, nbytes)


def _address(args: Any) -> int:
    import ctypes

    return ctypes.addressof(args)
