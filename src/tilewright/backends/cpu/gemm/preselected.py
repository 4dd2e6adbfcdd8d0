"""Preselected GEMM sets of the CPU: their schedules follow from the arch's vectors."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.preselected import Part, PreselectedSet
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import GemmSignature


def _one_a_pipeline(signature: GemmSignature, arch: Arch) -> Iterator[GemmSchedule]:
    """The first legal default schedule of every pipeline: the CPU family lists its best first."""
    seen: set[str] = set()
    for schedule in legality.SPACES["cpu"].schedules("default", signature, arch):
        spec = KernelSpec("gemm", signature, schedule, arch.name)
        if schedule.pipeline not in seen and not legality.check(spec):
            seen.add(schedule.pipeline)
            yield schedule


def _cpu(name: str, datatype: str, layout: str, purpose: str, *parts: Part) -> PreselectedSet:
    return PreselectedSet(name, "cpu", datatype, layout, purpose, parts or (Part(),), _one_a_pipeline)


SETS: dict[str, PreselectedSet] = {
    preselected.name: preselected
    for preselected in (
        _cpu("fp32_essential", "fp32", "rrr", "fp32 as NumPy stores it"),
        _cpu("fp16_essential", "fp16", "rcr", "fp16 with weights stored by column"),
        _cpu("bf16_essential", "bf16", "rcr", "bf16 with weights stored by column"),
        _cpu("fp8_essential", "fp8", "rcr", "fp8 in, fp32 out"),
        _cpu(
            "int8_essential",
            "int8",
            "rcr",
            "quantised layers, int32 or int8 out",
            Part(output="int32"),
            Part(output="int8"),
            Part("preshuffle", output="int32"),
        ),
        _cpu(
            "llm_bf16",
            "bf16",
            "rcr",
            "the layers of a language model",
            Part(),
            Part("preshuffle"),
            Part("multi_d", "MultiDAdd", 1),  # bias or residual
            Part("multi_d", "Silu"),
            Part("multi_d", "MultiDMultiply", 1),  # the gate of a gated MLP
        ),
        _cpu(
            "multi_d_fp32",
            "fp32",
            "rrr",
            "fused bias, residual and activation",
            *(Part("multi_d", epilogue, num_d) for epilogue in ("MultiDAdd", "MultiDMultiply") for num_d in (1, 2)),
            *(Part("multi_d", epilogue, num_d) for epilogue in ("Relu", "Gelu", "FastGelu") for num_d in (0, 1)),
        ),
    )
}
