"""Element offsets beyond 2^31 and 2^32, in address space that is reserved but never filled.

Only the pages of the few elements in use become memory; the strides between them are what is tested:
a product taken in 32 bits would land elsewhere, read zeros and write outside E.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.harness import Array, Scratch, ordinary
from tests.built import Built
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.reference import verify
from tilewright.runtime import host
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.numpy_types import numpy_dtype

pytestmark = pytest.mark.skipif(sys.platform != "linux" or sys.maxsize < 2**40, reason="needs sparse address space")

MAP_NORESERVE = 0x4000
REGION = 1 << 42  # bytes of address space
FUSED = {one: catalog.spec("packed", one, epilogue="MultiDAdd", num_d=1) for one in catalog.PLAIN_LEVELS}
KERNELS = (*catalog.core().values(), *FUSED.values())


@pytest.fixture
def region() -> Iterator[mmap.mmap]:
    try:
        memory = mmap.mmap(-1, REGION, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except OSError as error:
        pytest.skip(f"this machine does not reserve {REGION} bytes of address space: {error}")
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # a line of a few bytes must not cost two megabytes
    try:
        yield memory
    finally:
        memory.close()


class Place:
    """Matrices far apart in the region, one after the other."""

    def __init__(self, region: mmap.mmap) -> None:
        self.region, self.used = region, 4096

    def put(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Array:
        size = DTYPES[dtype].bytes
        reach = sum((one - 1) * stride for one, stride in zip(shape, strides, strict=True)) + 1
        offset, self.used = self.used, self.used + -(-reach * size // 4096) * 4096 + 4096
        assert self.used < REGION
        return np.ndarray(shape, numpy_dtype(dtype), self.region, offset, tuple(one * size for one in strides))


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * mmap.PAGESIZE


# Just over 2^31 and 2^32 elements, and one whose low 32 bits are negative.
FAR = {"lines": (1 << 31) + 77, "batch": (1 << 32) + 4096 + 5}


SIZES = {pipeline: (4, 50, 70) if pipeline in cpu.STREAMS else (35, 53, 70) for pipeline in cpu.PIPELINES}
SIZES["stream"] = (50, 5, 70)  # few columns: the other way round


@pytest.mark.parametrize("which", sorted(FAR))
@pytest.mark.parametrize("name", list(catalog.core()))
def test_strides_over_two_to_the_31(built: Built, region: mmap.mmap, name: str, which: str) -> None:
    spec = catalog.core()[name]
    s, kernel = spec.signature, built[spec]
    # Whole squares of lines and edges beside them: packing has code of its own for each.
    m, n, k = SIZES[spec.schedule.pipeline]
    batch = 1 if which == "lines" else 2
    problem = GemmProblem(
        m=m, n=n, k=k, dtype_a=s.dtype_a, dtype_b=s.dtype_b, dtype_c=s.dtype_c, layout=s.layout, batch=batch, beta=True,
        preshuffled=s.variant == "preshuffle",
    )  # fmt: skip
    far = FAR[which]
    before, place, rng = _resident(), Place(region), np.random.default_rng(7)
    args = GemmArgs(m=m, n=n, k=k, batch=batch, alpha=1.0, beta=1.0)
    arrays: dict[str, Array] = {}
    by_rows = {"a": s.layout[0] == "r", "b": s.layout[1] == "r", "c": True, "e": True}
    sizes = {"a": (m, k), "b": (k, n), "c": (m, n), "e": (m, n)}
    dtypes = {"a": s.dtype_a, "b": s.dtype_b, "c": s.dtype_c, "e": s.dtype_c}
    for one, (rows, columns) in sizes.items():
        lines, length = (rows, columns) if by_rows[one] else (columns, rows)
        ld, apart = (far, 0) if which == "lines" else (length + 3, far)
        made = place.put((batch, lines, length), (apart, ld, 1), dtypes[one])
        made[...] = ordinary(rng, made.shape, dtypes[one])
        arrays[one] = made if by_rows[one] else made.swapaxes(1, 2)
        setattr(args, one, made.ctypes.data)
        setattr(args, f"{one}_stride", ld)
        setattr(args, f"{one}_batch_stride", apart)
    at, team = ctypes.addressof(args), host.team(2)
    if kernel.pack is not None:
        packed = Scratch(kernel.packed_bytes(args))
        assert kernel.pack(at, packed.address, team) == 0
        args.b = packed.address
    for beta in (1.0, 0.0):  # without C, sums may go straight from registers to E
        args.beta = beta
        assert kernel.refusal(args) == ""
        scratch = Scratch(kernel.workspace_bytes(args, 2))
        assert kernel.launch(at, scratch.address, team) == 0
        check = verify(problem, {**arrays, "ds": (), "alpha": 1.0, "beta": beta}, arrays["e"])
        assert check.ok, check.detail
    # A page for each line: nothing was filled between them.
    assert _resident() - before < 64 << 20


@pytest.mark.parametrize("kind", ["row", "batch"])
def test_far_rows_of_d(built: Built, region: mmap.mmap, kind: str) -> None:
    kernel = built[FUSED[catalog.plain()]]
    batch, m, n, k = (1, 3, 20, 4) if kind == "row" else (2, 3, 20, 4)
    far = FAR["lines"]
    place, rng = Place(region), np.random.default_rng(8)
    a, b = rng.standard_normal((batch, m, k), np.float32), rng.standard_normal((batch, k, n), np.float32)
    d = place.put((batch, m, n), (0, far, 1) if kind == "row" else (far, n, 1), "fp32")
    d[...] = rng.standard_normal(d.shape)
    e = np.full((batch, m, n), np.nan, np.float32)
    args = GemmArgs(m=m, n=n, k=k, batch=batch, alpha=1.0, beta=0.0, a=a.ctypes.data, b=b.ctypes.data, e=e.ctypes.data)
    args.a_stride, args.b_stride, args.e_stride = k, n, n
    args.a_batch_stride, args.b_batch_stride, args.e_batch_stride = m * k, k * n, m * n
    args.d[0], args.d_col_stride[0] = d.ctypes.data, 1
    args.d_row_stride[0], args.d_batch_stride[0] = (far, 0) if kind == "row" else (n, far)
    assert kernel.refusal(args) == ""
    scratch = Scratch(kernel.workspace_bytes(args, 1))
    assert kernel.launch(ctypes.addressof(args), scratch.address, 0) == 0
    assert np.allclose(e, a @ b + d, atol=1e-5)
