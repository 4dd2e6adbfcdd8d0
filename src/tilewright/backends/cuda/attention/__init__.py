"""All the CUDA backend knows of attention.

A pipeline is two headers of `cuda/` (`cuda/attention/attention.h` says what they have) and a function here that turns a
schedule into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cuda.arch_facts import arch_facts
from tilewright.backends.cuda.attention import estimate as attention_estimate
from tilewright.backends.cuda.attention import fp8 as nvidia_fp8
from tilewright.backends.cuda.attention import latent as nvidia_latent
from tilewright.backends.cuda.attention import mma as nvidia_mma
from tilewright.backends.cuda.attention import space
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.latent import LatentSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.backends.cuda.attention.schedules import CombineSchedule, WsSchedule, shared_bytes
from tilewright.backends.cuda.pipelines import COMPILE_MEMORY, Fields, Pipeline, flag
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec


def _ws(spec: KernelSpec) -> Fields:
    h: WsSchedule = spec.schedule
    return {
        "tile_n": h.tile_n,
        "warpgroups": h.warpgroups,
        "stages": h.stages,
        "together": h.together,
        "pack_heads": flag(h.packs),
        "dynamic": flag(h.dealing == "dynamic"),
        "shares": flag(h.pipeline == "shares"),
        "row_stages": h.row_stages,
    }


def _mma(spec: KernelSpec) -> Fields:
    h: MmaSchedule = spec.schedule
    named = ("tile_n", "warps_m", "warps_n", "row_blocks", "slots", "together")
    return {**{one: getattr(h, one) for one in named}, "pack_heads": flag(h.pipeline == "mma_decode")}


def _fp8(spec: KernelSpec) -> Fields:
    h: Fp8Schedule = spec.schedule
    return {"tile_n": h.tile_n, "warpgroups": h.warpgroups, "stages": h.stages}


def _latent(spec: KernelSpec) -> Fields:
    h: LatentSchedule = spec.schedule
    return {"tile_n": h.tile_n, "stages": h.stages}


def _combine(spec: KernelSpec) -> Fields:
    h: CombineSchedule = spec.schedule
    early = "wgmma" in arch_by_name(spec.arch).features  # from sm_90 on
    return {"warps": h.warps, "early": flag(early)}


_WS = Pipeline("attention/ws/kernel.h", "attention/ws/host.h", "TW_DEVICE_ATTENTION_WS", "HostAttentionWs", _ws)
_SHARES = ("attention/ws/kernel.h", "attention/shares/host.h", "TW_DEVICE_ATTENTION_WS", "HostAttentionShares")
_MMA = Pipeline("attention/mma/kernel.h", "attention/mma/host.h", "TW_DEVICE_ATTENTION_MMA", "HostAttentionMma", _mma)
_LOOPS = ("attention/loops/kernel.h", "attention/loops/host.h", "TW_DEVICE_ATTENTION_LOOPS", "HostAttentionLoops")
_COMBINE = (
    "attention/combine/kernel.h",
    "attention/combine/host.h",
    "TW_DEVICE_ATTENTION_COMBINE",
    "HostAttentionCombine",
)
_LATENT = ("attention/latent/kernel.h", "attention/latent/host.h", "TW_DEVICE_ATTENTION_LATENT", "HostAttentionLatent")
PIPELINES = {
    "combine": Pipeline(*_COMBINE, _combine),
    "ws": _WS,
    "decode": _WS,
    "shares": Pipeline(*_SHARES, _ws),
    "fp8": Pipeline(
        "attention/fp8/kernel.h", "attention/fp8/host.h", "TW_DEVICE_ATTENTION_FP8", "HostAttentionFp8", _fp8
    ),
    "latent": Pipeline(*_LATENT, _latent),
    "mma": _MMA,
    "mma_decode": _MMA,
    "loops": Pipeline(*_LOOPS, lambda spec: {}),
}


class CudaAttention(KernelsDefaults):
    space = space
    template = ("tilewright.backends.cuda", "templates/attention.cu.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {**found._asdict(), "fields": found.fields(spec), "arch": arch_facts(spec.arch)}

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        return attention_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        if isinstance(spec.schedule, MmaSchedule):
            return Promises(nvidia.WARP, ("LDGSTS",), nvidia_mma.shared_bytes(spec.signature, spec.schedule))
        if isinstance(spec.schedule, Fp8Schedule):
            return Promises(nvidia.WARPGROUP, ("UTMALDG",), nvidia_fp8.shared_bytes(spec.signature, spec.schedule))
        if isinstance(spec.schedule, LatentSchedule):
            return Promises(nvidia.WARPGROUP, ("UTMALDG",), nvidia_latent.shared_bytes(spec.signature, spec.schedule))
        if not isinstance(spec.schedule, WsSchedule):
            return Promises()
        return Promises(nvidia.WARPGROUP, ("UTMALDG",), shared_bytes(spec.signature, spec.schedule))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


KERNELS = CudaAttention()
