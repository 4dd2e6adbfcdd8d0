"""All the HIP backend knows of attention: CK Tile's kernels under their names of a header profile, and plain loops.

Everything a kernel needs to know is worked out here and filled into a Config; the C++ asserts that the templates come
to the same block and LDS sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.hip.attention import headers as amd_headers
from tilewright.backends.hip.attention import space
from tilewright.backends.hip.attention.schedules import CkTileAttentionSchedule, default, instance, route
from tilewright.backends.hip.attention.space import ck_tile_rules
from tilewright.backends.hip.ck_tile import chosen, included
from tilewright.backends.hip.profiles import DEFAULT, PACKAGE, Needs, Sign, has_part, named, profile, read_part
from tilewright.dtypes import dtype
from tilewright.errors import ToolchainError
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec

# Peak resident size of one compile, rounded up.
COMPILE_MEMORY = 2 << 30
LOOPS_MEMORY = 300 << 20

_MULTIPLY = ("v_mfma_", "v_smfmac_")
_START = 5e-6
_LOOP_RATE = 5e11  # products of the loops a second
_SHARE = 0.4  # of the data sheet's rate that a well filled kernel reaches
_LOOPS = {
    "header": "attention_loops.h", "kernel": "AttentionLoopsKernel", "fields": {},
    "route": "", "pipeline": "", "shared": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttentionProfile:
    """Attention's part of a version of the CK Tile headers."""

    told_by: tuple[Sign, ...]  # beyond what tells the version
    routes: Mapping[str, str]  # which kernel, to our header that turns a Config into this version's templates
    pipelines: Mapping[str, Mapping[str, Any]]  # route and pipeline to class and includes


@lru_cache(maxsize=8)
def attention_profile(version: str = DEFAULT) -> AttentionProfile:
    if not has_part(PACKAGE, f"attention.{version}.json"):
        raise ToolchainError(
            f"attention kernels are not written for CK Tile headers of {version}",
            rule="headers-lack",
            value=version,
            remedy=f"use headers of {DEFAULT} (`tilewright toolchain install rocm`), or loops",
        )
    return read_part(PACKAGE, f"attention.{version}.json", AttentionProfile)


def example_kernel(arch: str) -> KernelSpec:
    """Legal on every arch CK Tile has attention for; the templates under it are those most kernels use."""
    signature = AttentionSignature("forward", "fp16", "fp16", "fp16")
    return KernelSpec("attention", signature, next(default(signature, arch_by_name(arch))), arch)


class HipAttention(KernelsDefaults):
    space = space
    template = ("tilewright.backends.hip", "templates/attention.hpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        if not isinstance(spec.schedule, CkTileAttentionSchedule):
            return _LOOPS
        return {**_context(spec), "shared": False}

    def shared_example(self, arch: str) -> KernelSpec | None:
        spec = example_kernel(arch)
        return spec if next(ck_tile_rules(spec.signature, arch_by_name(arch)), None) is None else None

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """Of the text that is precompiled: one kernel that exports nothing."""
        # An example must not meet the kernel of the same spec.
        return {**_context(spec), "shared": True, "space": "tw_shared"}

    def header_needs(self, version: str) -> Needs | None:
        if not has_part(PACKAGE, f"attention.{version}.json"):
            return None
        part = attention_profile(version)
        kinds = {}
        for name, one in part.pipelines.items():
            ours = [part.routes[name.split()[0]], *(each for each in one["includes"] if each.startswith("tilewright/"))]
            texts = [resources.files("tilewright.backends.hip").joinpath("include", each) for each in ours]
            theirs = [each for each in one["includes"] if each not in ours]
            kinds[name] = (*theirs, *(each for text in texts for each in included(text.read_text(encoding="utf-8"))))
        return Needs(part.told_by, kinds)

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        h = spec.schedule
        if not isinstance(h, CkTileAttentionSchedule):
            return _START + (problem.flops / 2 + problem.bytes / 4) / _LOOP_RATE
        return _START + max(_compute_seconds(spec, problem), problem.bytes / _memory_rate(spec.arch))

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions, but of the loops and of what only moves."""
        multiplies = isinstance(spec.schedule, CkTileAttentionSchedule) and spec.signature.family in (
            "forward",
            "split",
        )
        return Promises(_MULTIPLY if multiplies else ())

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY if isinstance(spec.schedule, CkTileAttentionSchedule) else LOOPS_MEMORY


def _sheet(arch: str) -> Mapping[str, float]:
    return next(iter((arch_by_name(arch).data_sheets or {}).values()), {})


def _memory_rate(arch: str) -> float:
    return 0.7 * _sheet(arch).get("memory", 1e12)


def _compute_seconds(spec: KernelSpec, problem: AttentionProblem) -> float:
    """Whole tiles of rows and keys, on as many compute units as there are blocks for."""
    h: CkTileAttentionSchedule = spec.schedule
    facts = arch_by_name(spec.arch)
    if problem.family not in ("forward", "split"):
        return 0.0
    m0, n0 = h.tile[0], h.tile[1]
    tiles = -(-problem.seqlen_q // m0)
    filled = tiles * m0 / max(1, problem.seqlen_q) * (-(-problem.seqlen_k // n0) * n0) / max(1, problem.seqlen_k)
    blocks = problem.batch * problem.heads_q * tiles * max(1, problem.num_splits)
    units = max(1, facts.compute_units)
    waves = -(-blocks // units) * units / max(1, blocks)
    rate = _SHARE * _sheet(spec.arch).get(problem.dtype_q, 1e14)
    # Edge code of heads loads element by element where K comes through registers.
    slow = 1.5 if h.pipeline != "qr_async" and (h.pad[2] or h.pad[3]) else 1.0
    return problem.flops * filled * waves * slow / rate


def _context(spec: KernelSpec) -> dict[str, Any]:
    version, s, h = chosen(), spec.signature, spec.schedule
    types, part, where = profile(version).types, attention_profile(version), route(s)
    one = instance(s, h, spec.arch)
    pipeline = named(part.pipelines, "pipeline", f"{where} {h.pipeline}", version)
    return {
        "header": "attention.h",
        "kernel": "CkTileAttentionKernel",
        "route": where,
        "glue": named(part.routes, "kernel", where, version),
        "includes": pipeline["includes"],
        "pipeline": pipeline["class"],
        "element": {"type": named(types, "type", s.dtype_q, version), "bytes": dtype(s.dtype_q).bytes},
        "out": {"type": named(types, "type", s.dtype_out, version), "bytes": dtype(s.dtype_out).bytes},
        "fields": {**_numbers(h), **_switches(h), "threads": amd_headers.threads(one),
                   "lds_bytes": amd_headers.lds_bytes(one) if one.family in amd_headers.MULTIPLYING else 0},
    }  # fmt: skip


def _numbers(h: CkTileAttentionSchedule) -> dict[str, int]:
    both = {"warp_grid": h.warp_grid, "warp_tile": h.warp_tile}
    return {
        **{f"tile_{name}": h.tile[i] for i, name in enumerate(h.axis_names["tile"])},
        **{f"{what}_{axis}{gemm}": of[i] for what, of in both.items() for gemm in "01" for i, axis in enumerate("mnk")},
        "blocks_per_cu": h.block_per_cu or -1,
        "log_splits": h.max_splits_log2,
    }


def _switches(h: CkTileAttentionSchedule) -> dict[str, str]:
    found = {f"pad_{name}": h.pad[i] for i, name in enumerate(h.axis_names["pad"])}
    found |= {"loaded": h.pipeline in amd_headers.LOADED, "staged_q": h.pipeline == "qs"}
    return {name: "true" if value else "false" for name, value in found.items()}


KERNELS = HipAttention()
