"""What the kernels of each stage compute, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.ops.base import KernelSpec, read_spec
from tilewright.ops.pooling import demand_known

OP = "regionstats"
STAGES = ("partial", "combine")
DTYPES = ("fp32", "fp16", "bf16")  # of x and the peak; all else is fp32


@dataclass(frozen=True, slots=True)
class PartialSignature:
    """Chunks of positions to sums and maxima; the number of spatial dimensions is known when it runs."""

    dtype: str
    weight: bool = False
    shift: bool = False
    stage: str = field(default="partial", init=False)

    def label(self) -> str:
        return f"{self.stage}_{self.dtype}" + "_weight" * self.weight + "_shift" * self.shift


@dataclass(frozen=True, slots=True)
class CombineSignature:
    """Chunks to mean and peak."""

    dtype: str
    stage: str = field(default="combine", init=False)

    def label(self) -> str:
        return f"{self.stage}_{self.dtype}"


@dataclass(frozen=True, slots=True)
class LoopsSchedule:
    """Plain loops: the floor of either stage."""

    pipeline: str = field(default="loops", init=False)

    def label(self) -> str:
        return self.pipeline


@dataclass(frozen=True, slots=True)
class PartialSchedule:
    """Sums and maxima of `vectors` vectors of channels stay in registers while a chunk is walked."""

    vectors: int
    pipeline: str = field(default="registers", init=False)

    def label(self) -> str:
        return f"{self.pipeline}_{self.vectors}"


@dataclass(frozen=True, slots=True)
class CombineSchedule:
    """A thread takes `entries` entries at a time, a vector of channels after the other."""

    entries: int
    pipeline: str = field(default="vector", init=False)

    def label(self) -> str:
        return f"{self.pipeline}_{self.entries}"


SIGNATURES: dict[str, type[Any]] = {"partial": PartialSignature, "combine": CombineSignature}
SCHEDULES: dict[str, dict[str, type[Any]]] = {
    "partial": {"registers": PartialSchedule, "loops": LoopsSchedule},
    "combine": {"vector": CombineSchedule, "loops": LoopsSchedule},
}


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    """The stage picks the signature's class, stage and pipeline the schedule's."""
    signature = data.get("signature") if isinstance(data, Mapping) else None
    stage = str(signature.get("stage")) if isinstance(signature, Mapping) else "partial"
    demand_known("stage-name", "stage of regionstats", [stage], STAGES)

    def schedule(arch: str, given: Mapping[str, Any]) -> type[Any]:
        pipeline = str(given.get("pipeline"))
        demand_known("pipeline-name", f"regionstats pipeline of stage {stage}", [pipeline], list(SCHEDULES[stage]))
        return SCHEDULES[stage][pipeline]

    return read_spec(data, OP, SIGNATURES[stage], schedule)
