"""ck_tile: CK Tile's kernel of dq, dk and dv, over its headers of mid-2025.

Every block makes its arguments of its own sequence, so that one kernel serves batches, packed rows and padded lengths.
dq is added up over blocks by atomics, or in slices that are added in one order (`deterministic`); sums are not scaled,
as `convert` expects them.  Query heads that share a head of keys leave dk and dv as sums of fp32 each (`all`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.hip.attention_backward.ck_tile import dispatcher, legality
from tilewright.backends.hip.attention_backward.ck_tile.receipts import POOLS
from tilewright.backends.hip.attention_backward.ck_tile.tiles import (
    TILES,
    CkTileBackwardSchedule,
    usual_pipeline,
)
from tilewright.backends.hip.attention_backward.shared import HipAttentionBackwardFamily
from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.profiles import DEFAULT, PACKAGE, Sign, has_part, named, profile, read_part
from tilewright.dataclass import dataclass
from tilewright.dtypes import dtype
from tilewright.errors import ToolchainError
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation

COMPILE_MEMORY = 2 << 30  # peak resident size of one compile, rounded up
DEVICE = "tilewright/hip/attention_backward/ck_tile/device.h"


@dataclass(frozen=True, slots=True)
class BackwardProfile:
    """The gradients' part of a version of the CK Tile headers."""

    told_by: tuple[Sign, ...]  # beyond what tells the version
    pipelines: Mapping[str, Mapping[str, Any]]  # pipeline to class and includes


@lru_cache(maxsize=8)
def backward_profile(version: str = DEFAULT) -> BackwardProfile:
    part = f"attention_backward.{version}.json"
    if not has_part(PACKAGE, part):
        raise ToolchainError(
            f"kernels of attention's gradients are not written for CK Tile headers of {version}",
            rule="headers-lack",
            value=version,
            remedy=f"use headers of {DEFAULT} (`tilewright toolchain install rocm`), or loops",
        )
    return read_part(PACKAGE, part, BackwardProfile)


class CkTile(HipAttentionBackwardFamily):
    name = "ck_tile"
    schedules = (CkTileBackwardSchedule,)

    def host(self, spec: KernelSpec) -> str:
        return "CkTileAttentionBackward"

    def proposals(
        self, pool: str, signature: AttentionBackwardSignature, arch: Arch
    ) -> Iterator[CkTileBackwardSchedule]:
        """`default` has the pipeline of CK Tile's authors, with atomic sums and in one order; `full` and `profiler`
        both pipelines and two blocks a compute unit too; the pools of the dispatcher's profiles what it generates."""
        if signature.family != "grad":
            return
        if pool in POOLS:
            if next(legality.arch_rules(arch), None) is None:
                for each in dispatcher.profile_schedules(pool, signature, arch):
                    if isinstance(each, CkTileBackwardSchedule):
                        yield each
            return
        if next(legality.signature_rules(signature, arch), None) is not None:
            return
        tile, grid = TILES[signature.head_dim]
        usual = CkTileBackwardSchedule(usual_pipeline(signature.head_dim), tile, grid)
        if pool == "default":
            proposed: Iterator[CkTileBackwardSchedule] = iter((usual, replace(usual, deterministic=True)))
        else:
            proposed = _varied(usual)
        yield from (schedule for schedule in proposed if next(self.violations(signature, schedule, arch), None) is None)

    def signature_rules(self, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
        return legality.signature_rules(signature, arch)

    def violations(
        self, signature: AttentionBackwardSignature, schedule: CkTileBackwardSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return legality.violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CkTileBackwardSchedule = spec.schedule
        return {
            "tile_m0": h.tile[0], "tile_n0": h.tile[1], "tile_head": h.tile[7], "tile_head_v": h.tile[8],
            "pad_head": int(h.pad[2]), "pad_head_v": int(h.pad[3]), "ordered": int(h.deterministic),
        }  # fmt: skip

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        version, s, h = chosen(), spec.signature, spec.schedule
        pipeline = named(backward_profile(version).pipelines, "pipeline", h.pipeline, version)
        kind = {"type": named(profile(version).types, "type", s.dtype, version), "bytes": dtype(s.dtype).bytes}
        return {
            **super().context(spec), "route": "grad", "includes": [DEVICE, *pipeline["includes"]],
            "pipeline": pipeline["class"], "element": kind, "fields": _fields(h),
        }  # fmt: skip

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(("v_mfma_", "v_smfmac_"))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def _varied(usual: CkTileBackwardSchedule) -> Iterator[CkTileBackwardSchedule]:
    for pipeline in usual.pipelines:
        for deterministic in (False, True):
            for blocks in legality.BLOCKS_PER_CU:
                yield replace(usual, pipeline=pipeline, deterministic=deterministic, block_per_cu=blocks)


def _fields(h: CkTileBackwardSchedule) -> dict[str, int | str]:
    switches = {"pad_head_qk": h.pad[2], "pad_head_v": h.pad[3], "deterministic": h.deterministic}
    return {
        **{f"{what}_{name}": getattr(h, what)[i] for what in ("tile", "warp_grid", "warp_tile")
           for i, name in enumerate(h.axis_names[what])},
        "threads": h.threads, "blocks_per_cu": h.block_per_cu,
        **{name: "true" if on else "false" for name, on in switches.items()},
    }  # fmt: skip


FAMILY = CkTile()
