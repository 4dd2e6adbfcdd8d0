"""All the HIP backend knows of GEMM: its kernel families, and what they share.

ck_tile  CK Tile's templates where it has them
tiled    our own kernels, wherever there is a matrix instruction for the types
loops    the fallback, on every GPU: the loops that CUDA has too
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.families import OpFamilies
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip.ck_tile_rules import ck_tile_rules
from tilewright.backends.hip.gemm.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.gemm.ck_tile.proposals import fallback
from tilewright.backends.hip.gemm.ck_tile.templates import example_kernel, gemm_profile, of_ck_tile
from tilewright.backends.hip.gemm.code_models import remark
from tilewright.backends.hip.gemm.loops import FAMILY as LOOPS
from tilewright.backends.hip.gemm.preselected import SETS
from tilewright.backends.hip.gemm.rates import rate_numbers
from tilewright.backends.hip.gemm.tiled import FAMILY as TILED
from tilewright.backends.hip.profiles import PACKAGE, Needs, has_part
from tilewright.backends.native import FamiliesNative
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.dtype_rules import dtype_rules, one_b
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.numbers import FEATURES, FEATURES_HEADER, PROBLEM, problem_numbers
from tilewright.ops.gemm.spec import GemmSignature

FLOATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz")
FLOAT_OUTPUTS = ("fp16", "bf16", "fp32")
INT_OUTPUTS = ("int32", "int8", "fp32")
# What CK Tile's dispatcher takes where a configuration says nothing.
CONFIG_DEFAULTS: Mapping[str, Any] = {
    "tile_m": 128, "tile_n": 128, "tile_k": 32, "warp_grid_m": 2, "warp_grid_n": 2, "warp_grid_k": 1,
    "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "pipeline": "compv4", "scheduler": "intrawave",
    "store": "cshuffle", "pad_m": False, "pad_n": False, "pad_k": False, "persistent": False,
}  # fmt: skip


class HipGemm(OpFamilies):
    backend, op = "hip", "gemm"
    own = (CK_TILE, TILED, LOOPS)
    SETS = SETS
    CONFIG_DEFAULTS = CONFIG_DEFAULTS
    USUAL = ("fp16", "rcr")  # datatype and layout where nobody says, as users of CK Tile expect

    def signature_rules(self, signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
        """Which dtypes go together, whatever the kernel."""
        tf32 = ("AMD GPUs multiply fp32 exactly", 'use math="exact", or fp16 or bf16')
        yield from dtype_rules(signature, FLOATS, FLOAT_OUTPUTS, INT_OUTPUTS, refused={"tf32": tf32})
        yield from one_b(signature, arch)
        if signature.variant == "preshuffle" and TILED.lacks(signature, arch):
            pair = f"{signature.dtype_a} times {signature.dtype_b}"
            message = f"{arch.name} has no matrix instruction for {pair}, and the loops read no packed B"
            yield Violation("amd-packed", message, "give b unpacked")

    def fallback_schedule(self, signature: GemmSignature, arch: Arch) -> Any:
        """Plain loops; of a packed B, what reads it."""
        if signature.variant != "preshuffle":
            return GpuLoopsSchedule()
        alone = next(ck_tile_rules(signature, arch), None) is not None
        return TILED.packed(signature, arch) if alone else fallback(signature, arch)

    def remarks(self, spec: KernelSpec) -> list[str]:
        return [text for text in (remark(spec),) if text]

    def residency(self, spec: KernelSpec) -> Residency:
        """As learned models see a kernel."""
        h = spec.schedule
        small = h.tile[0] == 64 * h.warp_grid[0] and h.tile[1] <= 64
        return Residency(store=(1 if small else 2) if getattr(h, "store", "") == "direct" else 0)

    @cached_property
    def native(self) -> FamiliesNative:
        return FamiliesNative(
            self, "tw::selection::PreparedGemm", PROBLEM, problem_numbers, _arch_numbers, rate_numbers,
            exports="TW_SELECT_GEMM_FEATURES", headers=(FEATURES_HEADER,), features=FEATURES,
        )  # fmt: skip

    def shared_example(self, arch: str) -> KernelSpec | None:
        spec = example_kernel(arch)
        return spec if next(ck_tile_rules(spec.signature, arch_by_name(arch)), None) is None else None

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return CK_TILE.shared_context(spec)

    def header_needs(self, version: str) -> Needs | None:
        if not has_part(PACKAGE, f"gemm.{version}.json"):
            return None
        part = gemm_profile(version)
        return Needs(
            part.told_by, {name: of_ck_tile(pipeline["includes"]) for name, pipeline in part.pipelines.items()}
        )


def _arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"compute_units": max(1, arch.compute_units)}


KERNELS = HipGemm()
