"""All the CUDA backend knows of attention.

A pipeline is two headers of `cuda/` (`cuda/attention.h` says what they have) and a function here that turns a schedule
into the constants of its Config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cuda import attention_estimate
from tilewright.backends.cuda.pipelines import COMPILE_MEMORY, Fields, Pipeline, flag
from tilewright.ops.attention.nvidia_schedules import CombineSchedule, WsSchedule, shared_bytes
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec


def _ws(spec: KernelSpec) -> Fields:
    h: WsSchedule = spec.schedule
    return {
        "tile_n": h.tile_n,
        "warpgroups": h.warpgroups,
        "stages": h.stages,
        "together": h.together,
        "pack_heads": flag(h.pipeline == "decode"),
        "dynamic": flag(h.dealing == "dynamic"),
        "row_stages": h.row_stages,
    }


def _combine(spec: KernelSpec) -> Fields:
    h: CombineSchedule = spec.schedule
    return {"warps": h.warps}


_WS = Pipeline("attention_ws.h", "attention_host_ws.h", "TW_DEVICE_ATTENTION_WS", "HostAttentionWs", _ws)
_LOOPS = ("attention_loops.h", "attention_host_loops.h", "TW_DEVICE_ATTENTION_LOOPS", "HostAttentionLoops")
_COMBINE = ("attention_combine.h", "attention_host_combine.h", "TW_DEVICE_ATTENTION_COMBINE", "HostAttentionCombine")
PIPELINES = {
    "combine": Pipeline(*_COMBINE, _combine),
    "ws": _WS,
    "decode": _WS,
    "loops": Pipeline(*_LOOPS, lambda spec: {}),
}


class CudaAttention(KernelsDefaults):
    template = ("tilewright.backends.cuda", "templates/attention.cu.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found = PIPELINES[spec.schedule.pipeline]
        return {**found._asdict(), "fields": found.fields(spec)}

    def estimate(self, spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
        return attention_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        if not isinstance(spec.schedule, WsSchedule):
            return Promises()
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARPGROUP, ("UTMALDG",), shared_bytes(spec.signature, spec.schedule))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


KERNELS = CudaAttention()
