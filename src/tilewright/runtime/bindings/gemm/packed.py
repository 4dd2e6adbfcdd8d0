"""B packed once for preshuffle kernels, then used in place of b any number of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.errors import ProblemError, RequestError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.legality import pack_format
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings.gemm.operands import PackedShape
from tilewright.runtime.devices import Place
from tilewright.runtime.loader import Kernel

_numbers: dict[Any, int] = {}  # keys as they are met: their short names


class PackedB:
    """A packed B: its sizes, element types and the format of its bytes.  Made by `pack`."""

    __slots__ = ("_memory", "address", "dtype_a", "facts", "format", "key", "nbytes", "shape", "spec")

    def __init__(self, kernel: Kernel, shape: PackedShape, memory: object, address: int, nbytes: int) -> None:
        self.spec = kernel.spec
        self.format = pack_format(kernel.spec)
        self.shape = shape
        self.dtype_a = str(kernel.spec.signature.dtype_a)
        self.address = address
        self.nbytes = nbytes
        self._memory = memory
        self.key = (self.format, shape.k, shape.n, shape.batch, shape.repeated, shape.layout, shape.place)
        self.facts = _numbers.setdefault(self.key, len(_numbers)).to_bytes(8, "little")

    @property
    def place(self) -> Place:
        return self.shape.place

    def __repr__(self) -> str:
        shape = self.shape
        batch = "" if shape.batch is None else f"{shape.batch}x"
        return f"<PackedB {batch}{shape.k}x{shape.n} {shape.dtype} for {self.dtype_a} inputs, {self.nbytes} bytes>"

    def __copy__(self) -> PackedB:
        return self  # it never changes, and its bytes are at an address

    def __deepcopy__(self, _memo: object) -> PackedB:
        return self

    def __reduce__(self) -> NoReturn:
        raise RequestError(
            "a packed b cannot be pickled: its bytes belong to this machine's kernels and to this process",
            rule="packed-pickle",
            value=repr(self),
            remedy="pickle b itself, and call tilewright.pack where it is read",
        )

    def refuses(self) -> Callable[[KernelSpec], str]:
        """Why a kernel cannot read these bytes; empty when it can."""
        mine = self.format

        def why(spec: KernelSpec) -> str:
            return "" if pack_format(spec) == mine else "reads B packed in another format"

        return why

    def demand(self, a: View, math: str = "") -> None:
        """Raise where b was packed for other inputs than an `a` that is multiplied as `math` (as what it is)."""
        dtype = math or a.dtype
        if dtype == self.dtype_a:
            return
        other = f"convert a to {self.dtype_a}"
        if a.dtype == "fp32" and self.dtype_a == "tf32":
            other = f"give math={self.dtype_a!r}"
        raise ProblemError(
            f"b was packed for {self.dtype_a} inputs, and a "
            + (f"is to be multiplied as {math}" if math else f"holds {a.dtype}"),
            rule="packed-dtype",
            value=dtype,
            remedy=f"pack again with tilewright.pack(b, dtype_a={dtype!r}), or {other}",
        )
