"""All the HIP backend knows of convolution: GEMM's instances of CK Tile with windows of our own, and plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.hip import ck_tile_shape
from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.conv import estimate as conv_estimate
from tilewright.backends.hip.conv import space
from tilewright.backends.hip.conv import tiled as amd_tiled
from tilewright.backends.hip.conv.schedules import CkTileConvSchedule, example_schedule
from tilewright.backends.hip.conv.shape import as_product, loads
from tilewright.backends.hip.conv.space import ck_tile_rules
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.backends.hip.gemm import KERNELS as GEMM
from tilewright.backends.hip.gemm import gemm_profile
from tilewright.backends.hip.profiles import DEFAULT, Needs, named, profile
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import OP, ConvSignature

# Peak resident size of one compile with all its tails, rounded up.
COMPILE_MEMORY = 1 << 30
LOOPS_MEMORY = 300 << 20
# Windows of our own take the place of CK Tile's in these versions of the headers.
VERSIONS = (DEFAULT,)
_OURS = ["tilewright/hip/ck_tile_conv.h", "tilewright/hip/conv_copied.h"]


class HipConv(KernelsDefaults):
    space = space
    template = ("tilewright.backends.hip", "templates/conv.hpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        if isinstance(spec.schedule, LoopsSchedule):
            return {
                "header": "conv_loops.h",
                "kernel": "ConvLoopsKernel",
                "numbers": {},
                "switches": {},
                "shared": False,
            }
        if isinstance(spec.schedule, TiledConvSchedule):
            return _tiled(spec)
        context = _context(spec)
        return {**context, "shared": False, "includes": context["pipeline"]["includes"]}

    def shared_example(self, arch: str) -> KernelSpec | None:
        signature = ConvSignature("forward", 2, "fp16", "fp32", "fp16", "fp16")
        if next(ck_tile_rules(signature, arch_by_name(arch)), None) is not None:
            return None
        return KernelSpec(OP, signature, example_schedule(), arch)

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """Of the text that is precompiled: the includes of every pipeline, and a kernel that exports nothing."""
        pipelines = gemm_profile(DEFAULT).pipelines
        every = (one for name in CkTileConvSchedule.pipelines for one in pipelines[name]["includes"])
        return {**_context(spec), "shared": True, "includes": list(dict.fromkeys(every)), "space": "tw_shared"}

    def header_needs(self, version: str) -> Needs | None:
        needs = GEMM.header_needs(version) if version in VERSIONS else None
        if needs is None:
            return None
        return Needs(needs.told_by, {name: needs.kinds[name] for name in CkTileConvSchedule.pipelines})

    def estimate(self, spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
        return conv_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions; the loops have none."""
        if isinstance(spec.schedule, LoopsSchedule) or spec.schedule.pipeline == "fma":
            return Promises()
        if isinstance(spec.schedule, TiledConvSchedule):
            return Promises(("v_wmma_",))
        return GEMM.promises(_product(spec))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        light = isinstance(spec.schedule, LoopsSchedule | TiledConvSchedule)
        return LOOPS_MEMORY if light else COMPILE_MEMORY


def _product(spec: KernelSpec) -> KernelSpec:
    """The matrix product a convolution is, as GEMM's half of the backend takes it."""
    signature, schedule = as_product(spec.signature, spec.schedule)
    return KernelSpec("gemm", signature, schedule, spec.arch)


def _context(spec: KernelSpec) -> dict[str, Any]:
    version, h = chosen(), spec.schedule
    if version not in VERSIONS:
        raise ToolchainError(
            f"convolutions are not written for CK Tile headers of {version}",
            rule="headers-lack",
            value=version,
            remedy=f"use headers of {DEFAULT} (`tilewright toolchain install rocm`), or the loops pipeline",
        )
    names, product = gemm_profile(version), _product(spec)
    return {
        "glue": names.glue,
        "ours": _OURS,
        "kernel": "ConvCopied" if h.special == "copied" else "Conv",
        "element": named(profile(version).types, "type", spec.signature.dtype, version),
        "bytes": ck_tile_shape.bytes_of(spec.signature.dtype),
        "pipeline": named(names.pipelines, "pipeline", h.pipeline, version),
        "store": named(names.stores, "store", h.store, version),
        "scheduler": named(names.schedulers, "scheduler", h.scheduler, version),
        "numbers": _numbers(spec, product),
        "switches": {
            "a_rows": product.signature.layout[0] == "r",
            "b_rows": product.signature.layout[1] == "r",
            "pad_m": True,
            "pad_n": True,
            "pad_k": True,
            "preshuffle": False,
            "persistent": False,
            "pointwise": h.special == "pointwise",
        },
    }


def _tiled(spec: KernelSpec) -> dict[str, Any]:
    """Of a kernel without CK Tile; its own header has the product."""
    h, s = spec.schedule, spec.signature
    numbers: dict[str, Any] = {f"tile_{axis}": h.tile[i] for i, axis in enumerate("mnk")}
    numbers |= {f"warp_grid_{axis}": h.warp_grid[i] for i, axis in enumerate("mn")}
    numbers |= {
        "split_k": h.split_k,
        "merged": h.merged,
        "threads": amd_tiled.threads(h),
        "stages": 1,
        "least_loops": 1,
        "read_a": h.vectors[0],
        "read_b": h.vectors[1],
        "width_c": h.vectors[2],
        "lds_bytes": amd_tiled.lds_bytes(s, h),
    }
    return {
        "kernel": "ConvCopied" if h.special == "copied" else "Conv",
        "numbers": numbers,
        "switches": {"pointwise": h.special == "pointwise", "matrix": h.pipeline == "wmma"},
        "shared": False,
    }


def _numbers(spec: KernelSpec, product: KernelSpec) -> dict[str, Any]:
    """Numbers of a Config: what GEMM's has under the same names, and the widths in which operands are read."""
    h, s, g = spec.schedule, product.signature, product.schedule
    turn = ck_tile_shape.turn(s, g)
    numbers: dict[str, Any] = {
        **{f"{name}_{axis}": getattr(h, name)[i]
           for name in ("tile", "warp_grid", "warp_tile") for i, axis in enumerate("mnk")},
        "split_k": h.split_k,
        "merged": h.merged,
        "wave_groups": 1,
        "lds_buffers": 2 if h.pipeline == "compv4" else 1,
        "threads": ck_tile_shape.threads(g),
        "stages": ck_tile_shape.prefetch_stages(s, g),
        "least_loops": ck_tile_shape.least_loops(g),
        "width_a": ck_tile_shape.width_a(s, g),
        "width_b": ck_tile_shape.width_b(s, g),
        "width_c": ck_tile_shape.width_c(s, g),
        "turn_m": turn.m,
        "turn_n": turn.n,
        "turn_parts": turn.parts,
        "lds_bytes": ck_tile_shape.lds_bytes(s, g),
    }  # fmt: skip
    numbers["read_a"], numbers["read_b"] = loads(spec.signature, h)
    return numbers


KERNELS = HipConv()
