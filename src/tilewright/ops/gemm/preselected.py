"""Preselected GEMM sets: small named lists of kernels for a purpose, each for one arch family.

A set fixes datatype, layout and family and says which schedules it takes for each of its
signatures: written out where a target's tiles are fixed, taken from the family's proposals where
they follow from the arch's vectors (the CPU).  Legality is asked as for any pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tilewright.arch import Arch
from tilewright.ops.base import KernelSpec
from tilewright.ops.encodings import element_type
from tilewright.ops.gemm import cpu, legality
from tilewright.ops.gemm import preselected_amd as amd
from tilewright.ops.gemm.problem import accumulator, default_output
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import GemmSignature

Schedules = Callable[[GemmSignature, Arch], Iterable[GemmSchedule]]


@dataclass(frozen=True, slots=True)
class Part:
    """One signature of a set, beyond the set's datatype and layout."""

    variant: str = "standard"
    epilogue: str = "PassThrough"
    num_d: int = 0
    output: str = ""  # empty: what the datatype gives by default


@dataclass(frozen=True, slots=True)
class PreselectedSet:
    """A named list of kernels; `parts` times `schedules`."""

    name: str
    family: str
    datatype: str
    layout: str
    purpose: str
    parts: tuple[Part, ...]
    schedules: Schedules

    def signatures(self, arch: Arch) -> Iterator[GemmSignature]:
        datatype = element_type(self.datatype, arch)
        for part in self.parts:
            output = part.output or default_output(datatype, datatype)
            yield GemmSignature(
                variant=part.variant,
                dtype_a=datatype,
                dtype_b=datatype,
                dtype_acc=accumulator(datatype),
                dtype_c=output,
                dtype_d=output,
                layout=self.layout,
                epilogue=part.epilogue,
                num_d=part.num_d,
            )


def _one_a_pipeline(signature: GemmSignature, arch: Arch) -> Iterator[GemmSchedule]:
    """The first legal default schedule of every pipeline: the CPU family lists its best first."""
    seen: set[str] = set()
    for schedule in cpu.schedules("default", signature, arch):
        spec = KernelSpec("gemm", signature, schedule, arch.name)
        if schedule.pipeline not in seen and not legality.check(spec):
            seen.add(schedule.pipeline)
            yield schedule


def _cpu(name: str, datatype: str, layout: str, purpose: str, *parts: Part) -> PreselectedSet:
    return PreselectedSet(name, "cpu", datatype, layout, purpose, parts or (Part(),), _one_a_pipeline)


def _cdna(name: str, datatype: str, purpose: str, schedules: Schedules, *parts: Part) -> PreselectedSet:
    return PreselectedSet(name, "cdna", datatype, "rcr", purpose, parts or (Part(),), schedules)


_FUSED = tuple(Part("multi_d", one, num_d) for one in ("MultiDAdd", "Relu", "Gelu", "FastGelu") for num_d in (1, 2))

SETS: dict[str, PreselectedSet] = {
    one.name: one
    for one in (
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
        _cdna("fp16_rcr_compute", "fp16", "large products", amd.compute),
        _cdna("fp16_rcr_memory", "fp16", "few rows or columns", amd.memory),
        _cdna("fp16_rcr_latency", "fp16", "small results at once", amd.latency),
        _cdna("fp16_rcr_multi_d", "fp16", "fused bias, residual and activation", amd.fused, *_FUSED),
        _cdna("fp16_rcr_preshuffle", "fp16", "weights packed beforehand", amd.preshuffle, Part("preshuffle")),
        _cdna("fp16_rcr_all", "fp16", "the five sets above", amd.everything, Part(), *_FUSED, Part("preshuffle")),
        _cdna(
            "fp16_rcr_essential",
            "fp16",
            "six kernels to start with",
            amd.essential,
            Part(),
            Part("multi_d", "Relu", 1),
            Part("multi_d", "Gelu", 1),
        ),
        _cdna("bf16_rcr_essential", "bf16", "two kernels to start with", amd.essential),
        _cdna("int8_rcr_essential", "int8", "int8 in, int32 out", amd.essential),
        _cdna("fp8_rcr_essential", "fp8", "fp8 in, fp16 out", amd.essential, Part(output="fp16")),
        _cdna("mixed_precision", "bf16", "bf16 in, fp32 out", amd.essential, Part(output="fp32")),
    )
}
