"""CK Tile's templates under their names of a header profile.

Everything a kernel needs to know is worked out here and filled into a Config; the C++ asserts that the templates come
to the same widths and LDS sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.ck_tile import chosen, included
from tilewright.backends.hip.gemm.ck_tile.schedule import CkTileSchedule
from tilewright.backends.hip.profiles import DEFAULT, PACKAGE, Sign, named, profile, read_part
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.spec import GemmSignature

_LOADED = ("a", "b")  # as CK Tile names them; what leaves has types of our own


@dataclass(frozen=True, slots=True)
class GemmProfile:
    """GEMM's part of a version of the CK Tile headers."""

    glue: str  # our header that turns a Config into this version's templates
    told_by: tuple[Sign, ...]  # beyond what tells the version
    pipelines: Mapping[str, Mapping[str, Any]]  # pipeline to class and includes; its own header alone does not compile
    schedulers: Mapping[str, str]
    stores: Mapping[str, str]  # store to the class of the glue header


@lru_cache(maxsize=8)
def gemm_profile(version: str = DEFAULT) -> GemmProfile:
    return read_part(PACKAGE, f"gemm.{version}.json", GemmProfile)


def example_kernel(arch: str) -> KernelSpec:
    """Legal on every arch CK Tile multiplies on; the templates under it are those most kernels use."""
    signature = GemmSignature(
        variant="standard", dtype_a="fp16", dtype_b="fp16", dtype_acc="fp32", dtype_c="fp16", dtype_d="fp16",
        layout="rcr", epilogue="PassThrough", num_d=0,
    )  # fmt: skip
    return KernelSpec("gemm", signature, CkTileSchedule("compv3", (256, 128, 32), (32, 32, 16), (2, 2, 1)), arch)


def of_ck_tile(includes: Sequence[str]) -> tuple[str, ...]:
    """CK Tile's headers among them, and those that ours among them include."""
    headers = []
    for header in includes:
        if header.startswith("ck_tile/"):
            headers.append(header)
        else:
            text = resources.files("tilewright.backends.hip").joinpath("include", header).read_text(encoding="utf-8")
            headers += included(text)
    return tuple(headers)


def template_words(spec: KernelSpec) -> dict[str, Any]:
    version, s, h = chosen(), spec.signature, spec.schedule
    types, names = profile(version).types, gemm_profile(version)
    return {
        "glue": names.glue,
        "types": {operand: named(types, "type", getattr(s, f"dtype_{operand}"), version) for operand in _LOADED},
        "bytes": {operand: shape.bytes_of(getattr(s, f"dtype_{operand}")) for operand in _LOADED},
        "pipeline": named(names.pipelines, "pipeline", h.pipeline, version),
        "store": named(names.stores, "store", h.store, version),
        "scheduler": named(names.schedulers, "scheduler", h.scheduler, version),
        "width_a": shape.width_a(s, h),
        "width_b": shape.width_b(s, h),
        "width_c": shape.width_c(s, h),
        "turn": shape.turn(s, h),
        "lds_bytes": shape.lds_bytes(s, h),
        "threads": shape.threads(h),
        "stages": shape.prefetch_stages(s, h),
        "does": shape.pipeline_of(h),
    }
