"""All the HIP backend knows of GEMM: CK Tile's templates under their names of a header profile.

Everything a kernel needs to know is worked out here and filled into a Config; the C++ asserts that
the templates come to the same widths and LDS sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.hip import gemm_estimate
from tilewright.backends.hip.profiles import DEFAULT, PACKAGE, named, profile, read_part
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import amd_shape as shape
from tilewright.ops.gemm.schedule import CkTileSchedule
from tilewright.ops.gemm.spec import GemmSignature

# Peak resident size of one compile of a CK Tile GEMM with all its tails, rounded up.
COMPILE_MEMORY = 1 << 30

_LOADED = ("a", "b")  # as CK Tile names them; what leaves has types of our own
# The matrix instructions of an arch by its feature.
_MATRIX = {"mfma": ("v_mfma_", "v_smfmac_"), "wmma": ("v_wmma_", "v_swmmac_")}


@dataclass(frozen=True, slots=True)
class GemmProfile:
    """GEMM's part of a version of the CK Tile headers."""

    glue: str  # our header that turns a Config into this version's templates
    pipelines: Mapping[str, Mapping[str, Any]]  # pipeline to class and includes; its own header alone does not compile
    schedulers: Mapping[str, str]
    stores: Mapping[str, str]  # store to the class of the glue header


@lru_cache(maxsize=8)
def gemm_profile(version: str = DEFAULT) -> GemmProfile:
    return read_part(PACKAGE, f"gemm.{version}.json", GemmProfile)


class HipGemm(KernelsDefaults):
    template = ("tilewright.backends.hip", "templates/gemm.hpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        names = gemm_profile()
        pipeline = named(names.pipelines, "pipeline", spec.schedule.pipeline)
        return {**_context(spec), "shared": False, "includes": pipeline["includes"]}

    def shared_example(self, arch: str) -> KernelSpec:
        """Legal on every arch CK Tile multiplies on; the templates under it are those most kernels use."""
        signature = GemmSignature(
            variant="standard", dtype_a="fp16", dtype_b="fp16", dtype_acc="fp32", dtype_c="fp16", dtype_d="fp16",
            layout="rcr", epilogue="PassThrough", num_d=0,
        )  # fmt: skip
        schedule = CkTileSchedule("compv3", (256, 128, 32), (32, 32, 16), (2, 2, 1))
        return KernelSpec("gemm", signature, schedule, arch)

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """Of the text that is precompiled: the includes of every pipeline, and a kernel that exports nothing."""
        every = (one for each in gemm_profile().pipelines.values() for one in each["includes"])
        # An example must not meet the kernel of the same spec.
        return {**_context(spec), "shared": True, "includes": list(dict.fromkeys(every)), "space": "tw_shared"}

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return gemm_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions where the arch has them."""
        features = arch_by_name(spec.arch).features
        return Promises(tuple(name for feature, names in _MATRIX.items() if feature in features for name in names))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def _context(spec: KernelSpec) -> dict[str, Any]:
    types, names, s, h = profile().types, gemm_profile(), spec.signature, spec.schedule
    return {
        "glue": names.glue,
        "types": {one: named(types, "type", getattr(s, f"dtype_{one}")) for one in _LOADED},
        "bytes": {one: shape.bytes_of(getattr(s, f"dtype_{one}")) for one in _LOADED},
        "pipeline": named(names.pipelines, "pipeline", h.pipeline),
        "store": named(names.stores, "store", h.store),
        "scheduler": named(names.schedulers, "scheduler", h.scheduler),
        "width_a": shape.width_a(s, h),
        "width_b": shape.width_b(s, h),
        "width_c": shape.width_c(s, h),
        "turn": shape.turn(s, h),
        "lds_bytes": shape.lds_bytes(s, h),
        "threads": shape.threads(h),
        "stages": shape.prefetch_stages(s, h),
    }


KERNELS = HipGemm()
