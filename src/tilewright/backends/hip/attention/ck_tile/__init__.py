"""ck_tile: CK Tile's kernels, under their names of a header profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.families import Family
from tilewright.backends.hip.attention.ck_tile import legality, pools, schedules, templates
from tilewright.backends.hip.attention.ck_tile.headers import LOADED
from tilewright.backends.hip.attention.ck_tile.profiles import POOLS
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule, route
from tilewright.ops.attention.family import AttentionFamily
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

COMPILE_MEMORY = 2 << 30  # peak resident size of one compile, rounded up
_MULTIPLY = ("v_mfma_", "v_smfmac_")
_ROUTES = ("forward", "paged", "prefill", "split", "combine", "append")  # `Route` of limits.h
_PIPELINES = {"qr_async": 0, "qs": 1}  # `Pipeline` there; the others are asked nothing of their own
_OTHER = 2


class CkTile(Family, AttentionFamily):
    name = "ck_tile"
    schedules = (CkTileAttentionSchedule,)
    template = ("tilewright.backends.hip.attention", "attention.hpp.jinja")

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CkTileAttentionSchedule]:
        """`default` has the blocks CK Tile's authors chose, `full` and `profiler` every block; the pools of the
        dispatcher's profiles what it enumerates."""
        if pool in POOLS:
            if not any(violation.rule == "amd-attention-arch" for violation in legality.ck_tile_rules(signature, arch)):
                yield from pools.profile_schedules(pool, signature, arch)
        elif next(legality.ck_tile_rules(signature, arch), None) is None:
            proposed = schedules.default if pool == "default" else schedules.full
            yield from proposed(signature, arch)

    def violations(
        self, signature: AttentionSignature, schedule: CkTileAttentionSchedule, arch: Arch
    ) -> Iterator[Violation]:
        return legality.violations(signature, schedule, arch)

    def legal_schedules(self, signature: AttentionSignature, arch: Arch) -> Callable[[CkTileAttentionSchedule], bool]:
        return legality.VERDICTS.schedules(signature, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CkTileAttentionSchedule = spec.schedule
        tile = zip(("tile_m0", "tile_n0", "tile_k0", "tile_n1", "", "tile_k0max"), h.tile, strict=True)
        pads = zip(("pad_rows", "pad_keys", "pad_head", "pad_head_v"), map(int, h.pad), strict=True)
        more = {
            "route": _ROUTES.index(route(spec.signature)), "pipeline": _PIPELINES.get(h.pipeline, _OTHER),
            "loaded": int(h.pipeline in LOADED), "most_parts": 1 << h.max_splits_log2,
        }  # fmt: skip
        return {name: value for name, value in (*tile, *pads) if name} | more

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {**templates.context(spec), "shared": False, "limits": self.numbers(spec)}

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """Of the text that is precompiled: one kernel that exports nothing, nor meets the kernel of the same spec."""
        return {**self.context(spec), "shared": True, "space": "tw_shared"}

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions, but of what only moves."""
        return Promises(_MULTIPLY if spec.signature.family in ("forward", "split") else ())

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


FAMILY = CkTile()
