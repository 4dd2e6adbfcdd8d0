"""What the template of CK Tile's attention is filled with: names of a version of its headers, and a Config's numbers.

Everything a kernel needs to know is worked out here; the C++ asserts that the templates come to the same block and LDS
sizes.
"""

from __future__ import annotations

from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention.ck_tile import headers
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule, default, instance, route
from tilewright.backends.hip.attention.ck_tile.versions import attention_profile
from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.profiles import named, profile
from tilewright.dtypes import dtype
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec


def example_kernel(arch: str) -> KernelSpec:
    """Legal on every arch CK Tile has attention for; the templates under it are those most kernels use."""
    signature = AttentionSignature("forward", "fp16", "fp16", "fp16")
    return KernelSpec("attention", signature, next(default(signature, arch_by_name(arch))), arch)


def context(spec: KernelSpec) -> dict[str, Any]:
    version, s, h = chosen(), spec.signature, spec.schedule
    types, part, where = profile(version).types, attention_profile(version), route(s)
    inst = instance(s, h, spec.arch)
    pipeline = named(part.pipelines, "pipeline", f"{where} {h.pipeline}", version)
    return {
        "family": "ck_tile",
        "kernel": "CkTileAttentionKernel",
        "multiplied": "",
        "route": where,
        "glue": named(part.routes, "kernel", where, version),
        "includes": pipeline["includes"],
        "pipeline": pipeline["class"],
        "element": {"type": named(types, "type", s.dtype_q, version), "bytes": dtype(s.dtype_q).bytes},
        "out": {"type": named(types, "type", s.dtype_out, version), "bytes": dtype(s.dtype_out).bytes},
        "fields": {**_numbers(h), **_switches(h), "threads": headers.threads(inst),
                   "lds_bytes": headers.lds_bytes(inst) if inst.family in headers.MULTIPLYING else 0},
    }  # fmt: skip


def _numbers(h: CkTileAttentionSchedule) -> dict[str, int]:
    both = {"warp_grid": h.warp_grid, "warp_tile": h.warp_tile}
    return {
        **{f"tile_{name}": h.tile[i] for i, name in enumerate(h.axis_names["tile"])},
        **{
            f"{what}_{axis}{gemm}": sizes[i]
            for what, sizes in both.items()
            for gemm in "01"
            for i, axis in enumerate("mnk")
        },
        "blocks_per_cu": h.block_per_cu or -1,
        "log_splits": h.max_splits_log2,
    }


def _switches(h: CkTileAttentionSchedule) -> dict[str, str]:
    switches = {f"pad_{name}": h.pad[i] for i, name in enumerate(h.axis_names["pad"])}
    switches |= {"loaded": h.pipeline in headers.LOADED, "staged_q": h.pipeline == "qs", "by_turns": h.pipeline == "v3"}
    return {name: "true" if value else "false" for name, value in switches.items()}
