"""Kernels and sizes of the GPU suite, and how one result is judged."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright import ops
from tilewright.arch import arch as facts
from tilewright.dispatch import kernels
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm import nvidia_schedules as make
from tilewright.ops.gemm.spec import GemmSchedule, GemmSignature
from tilewright.runtime import cuda
from tilewright.runtime.bindings import binding
from tilewright.runtime.bindings.gemm import samples
from tilewright.runtime.device_arrays import DeviceArray

GEMM = ops.op("gemm")

# Sizes along m, n, k: whole tiles, one off either way, less than one instruction, long k, many tiles.
SIZES = (
    (1, 1, 1),
    (1, 8, 8),
    (3, 24, 16),
    (8, 16, 264),
    (16, 520, 1032),
    (64, 64, 64),
    (63, 65, 67),
    (128, 256, 64),
    (129, 257, 72),
    (256, 96, 8),
    (304, 520, 712),
    (333, 777, 555),
    (1000, 1000, 1000),
    (64, 64, 8192),
    (2048, 1536, 128),
    (5, 7, 0),
)


def pipelines(signature: GemmSignature, arch: str) -> Iterator[KernelSpec]:
    """One legal kernel for each thing the headers can do with a signature, and every default candidate's shape once."""
    specs = [KernelSpec("gemm", signature, one, arch) for one in _schedules(signature, arch)]
    return (one for one in specs if not GEMM.check(one))


def _schedules(signature: GemmSignature, arch: str) -> Iterator[GemmSchedule]:
    yield from make.schedules("tests", signature, facts(arch))
    if "wgmma" in facts(arch).features:
        yield make.tma_ws(signature, 128, 256, 4, (2, 1))
        yield make.tma_ws(signature, 128, 96, 5, (1, 1), "cooperative_stream_k")
        yield make.tma_ws(signature, 128, 24, 8, (1, 1), "cooperative", "direct")


def problem(signature: GemmSignature, m: int, n: int, k: int, **more: Any) -> GemmProblem:
    return GemmProblem(
        m, n, k, signature.dtype_a, signature.dtype_b, signature.dtype_c, signature.dtype_d, signature.layout,
        epilogue=signature.epilogue, num_d=signature.num_d, **more,
    )  # fmt: skip


def judge(spec: KernelSpec, one: GemmProblem) -> str:
    """Run the kernel three times on fresh random data into poisoned outputs; what is wrong, or nothing."""
    bound = binding("gemm")
    kernel = kernels.kernel(spec)
    operands = bound.operands(one, secrets.randbelow(2**32), cuda.device())
    run = bound.runner(kernel, one, operands, 1)
    first: np.ndarray[Any, Any] | None = None
    for _ in range(3):
        bound.poison(operands)
        run()
        cuda.device().synchronize()
        out: DeviceArray = operands["out"]
        found = out.numpy().view(np.uint8)
        if first is None:
            first = found
        elif not np.array_equal(first, found):
            return f"{spec.name} on {one.describe()}: two runs differ in {int((first != found).sum())} bytes"
    check = bound.check(one, operands)
    if not check.ok and not _fp8_sums(spec, one, operands):
        return f"{spec.name} on {one.describe()}: {check.detail} (error {check.bound_ratio:.3g} of its bound)"
    return _outside(one, operands)


def _fp8_sums(spec: KernelSpec, one: GemmProblem, operands: Any) -> bool:
    """Hopper's tensor cores add fp8 products with about 14 bits: right within that, where plain float sums are not."""
    if spec.schedule.pipeline != "tma_ws" or not one.dtype_a.startswith("fp8") or one.epilogue != "PassThrough":
        return False
    here = samples.on_host(operands)
    parts = samples.logical(one, here)
    a, b = np.asarray(parts["a"], np.float64), np.asarray(parts["b"], np.float64)
    exact, scale = a @ b, np.abs(a) @ np.abs(b)
    got = np.asarray(samples.result(one, here), np.float64)
    return bool((np.abs(got - exact) <= scale * 2.0**-11 + np.abs(exact) * 2.0**-7).all())


def _outside(one: GemmProblem, operands: Any) -> str:
    """Bytes between the rows of E must keep their poison."""
    if one.c_stride == one.n:
        return ""
    tail = operands["out"].numpy()[:, :, one.n :].view(np.uint8)
    return "" if (tail == 0xFF).all() else f"{one.describe()}: something was written between the rows of E"
