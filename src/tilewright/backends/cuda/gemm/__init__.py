"""All the CUDA backend knows of GEMM: its kernel families, and what they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.cuda.gemm.loops import FAMILY as LOOPS
from tilewright.backends.cuda.gemm.multistage import FAMILY as MULTISTAGE
from tilewright.backends.cuda.gemm.rates import rate_numbers
from tilewright.backends.cuda.gemm.shared import TENSOR_INPUTS
from tilewright.backends.cuda.gemm.skinny import FAMILY as SKINNY
from tilewright.backends.cuda.gemm.tma_ws import FAMILY as TMA_WS
from tilewright.backends.cuda.gemm.tma_ws.proposals import fallback
from tilewright.backends.families import OpFamilies
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.native import FamiliesNative
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.numbers import FEATURES, FEATURES_HEADER, PROBLEM, problem_numbers
from tilewright.ops.gemm.spec import GemmSignature

FLOATS = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")
INT_OUTPUTS = ("int32", "int8", "fp32")


class CudaGemm(OpFamilies):
    backend, op = "cuda", "gemm"
    own = (TMA_WS, MULTISTAGE, SKINNY, LOOPS)

    def signature_rules(self, signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
        """Which dtypes go together."""
        a, b, c, d = signature.dtype_a, signature.dtype_b, signature.dtype_c, signature.dtype_d
        if signature.variant == "preshuffle" and (a != b or a not in TENSOR_INPUTS or "wgmma" not in arch.features):
            yield Violation(
                "nv-preshuffle",
                f"B is packed for wgmma, which does not multiply {a} by {b} on {arch.name}",
                f"give b unpacked, or use one of {', '.join(TENSOR_INPUTS)} for both on sm_90a",
            )
        if a == "int8" or b == "int8":
            if a != b:
                yield Violation("dtype-mix", f"{a} times {b} is not supported", "int8 goes with int8 only")
            outputs: tuple[str, ...] = INT_OUTPUTS
        else:
            for field, value in (("dtype_a", a), ("dtype_b", b)):
                if value not in FLOATS:
                    remedy = f"use {', '.join(FLOATS)} or int8"
                    yield Violation("dtype-mix", f"{field} {value} is not an input type", remedy)
            if "tf32" in (a, b) and a != b:
                yield Violation("dtype-mix", f"{a} times {b} is not supported", "tf32 goes with tf32 only")
            outputs = FLOAT_OUTPUTS
        if c not in outputs:
            yield Violation("dtype-output", f"{a} times {b} cannot give {c}", f"use {', '.join(outputs)}")
        allowed = (c,) if c in ("int32", "int8", "fp32") else (c, "fp32")
        if signature.num_d and d not in allowed:
            yield Violation(
                "dtype-d", f"D tensors of {d} do not go with an output of {c}", f"use {' or '.join(allowed)}"
            )

    def fallback_schedule(self, signature: GemmSignature, arch: Arch) -> Any:
        """Plain loops; of a packed B, what reads it."""
        return fallback(signature) if signature.variant == "preshuffle" else GpuLoopsSchedule()

    def residency(self, spec: KernelSpec) -> Residency:
        """How the blocks of a kernel occupy the device, as learned models see it."""
        residency = getattr(self.family_of(spec.schedule), "residency", None)
        return Residency() if residency is None else residency(spec)

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::PreparedGemm", PROBLEM, problem_numbers, _arch_numbers, rate_numbers,
            exports="TW_SELECT_GEMM_FEATURES", headers=(FEATURES_HEADER,), features=FEATURES,
        )  # fmt: skip


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"compute_units": max(1, arch.compute_units), "scratch_bytes": arch.scratch_bytes}


KERNELS = CudaGemm()
