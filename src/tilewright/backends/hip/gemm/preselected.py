"""Preselected GEMM sets of CDNA GPUs: their tiles are written out."""

from __future__ import annotations

from tilewright.backends.hip.gemm import preselected_tiles as tiles
from tilewright.ops.gemm.preselected import Part, PreselectedSet, Schedules


def _cdna(name: str, datatype: str, purpose: str, schedules: Schedules, *parts: Part) -> PreselectedSet:
    return PreselectedSet(name, "cdna", datatype, "rcr", purpose, parts or (Part(),), schedules)


_FUSED = tuple(
    Part("multi_d", epilogue, num_d) for epilogue in ("MultiDAdd", "Relu", "Gelu", "FastGelu") for num_d in (1, 2)
)

SETS: dict[str, PreselectedSet] = {
    preselected.name: preselected
    for preselected in (
        _cdna("fp16_rcr_compute", "fp16", "large products", tiles.compute),
        _cdna("fp16_rcr_memory", "fp16", "few rows or columns", tiles.memory),
        _cdna("fp16_rcr_latency", "fp16", "small results at once", tiles.latency),
        _cdna("fp16_rcr_multi_d", "fp16", "fused bias, residual and activation", tiles.fused, *_FUSED),
        _cdna("fp16_rcr_preshuffle", "fp16", "weights packed beforehand", tiles.preshuffle, Part("preshuffle")),
        _cdna("fp16_rcr_all", "fp16", "the five sets above", tiles.everything, Part(), *_FUSED, Part("preshuffle")),
        _cdna(
            "fp16_rcr_essential",
            "fp16",
            "six kernels to start with",
            tiles.essential,
            Part(),
            Part("multi_d", "Relu", 1),
            Part("multi_d", "Gelu", 1),
        ),
        _cdna("bf16_rcr_essential", "bf16", "two kernels to start with", tiles.essential),
        _cdna("int8_rcr_essential", "int8", "int8 in, int32 out", tiles.essential),
        _cdna("fp8_rcr_essential", "fp8", "fp8 in, fp16 out", tiles.essential, Part(output="fp16")),
        _cdna("mixed_precision", "bf16", "bf16 in, fp32 out", tiles.essential, Part(output="fp32")),
    )
}
