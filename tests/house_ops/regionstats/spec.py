"""What the kernels of each stage compute, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ops.base import KernelSpec, read_spec

OP = "regionstats"
STAGES = ("partial", "combine")
DTYPES = ("fp32", "fp16", "bf16")  # of x and the peak; all else is fp32


@dataclass(frozen=True, slots=True)
class PartialSignature:
    """Chunks of positions to sums and maxima; the number of spatial dimensions is known when it runs."""

    dtype: str
    weight: bool = False
    shift: bool = False
    stage: str = "partial"

    def label(self) -> str:
        return f"{self.stage}_{self.dtype}" + "_weight" * self.weight + "_shift" * self.shift


@dataclass(frozen=True, slots=True)
class CombineSignature:
    """Chunks to mean and peak."""

    dtype: str
    stage: str = "combine"

    def label(self) -> str:
        return f"{self.stage}_{self.dtype}"


@dataclass(frozen=True, slots=True)
class LoopsSchedule:
    """Plain loops: the floor of either stage."""

    pipeline: str = "loops"

    def label(self) -> str:
        return self.pipeline


@dataclass(frozen=True, slots=True)
class PartialSchedule:
    """Sums and maxima of `vectors` vectors of channels stay in registers while a chunk is walked."""

    vectors: int
    pipeline: str = "registers"

    def label(self) -> str:
        return f"{self.pipeline}_{self.vectors}"


@dataclass(frozen=True, slots=True)
class CombineSchedule:
    """A thread takes `entries` entries at a time, a vector of channels after the other."""

    entries: int
    pipeline: str = "vector"

    def label(self) -> str:
        return f"{self.pipeline}_{self.entries}"


SCHEDULES: dict[str, dict[str, type[Any]]] = {
    "partial": {"registers": PartialSchedule, "loops": LoopsSchedule},
    "combine": {"vector": CombineSchedule, "loops": LoopsSchedule},
}


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    """The stage picks the signature's class, stage and pipeline the schedule's."""
    signature, schedule = PartialSignature, LoopsSchedule
    if isinstance(data, Mapping):
        of, how = data.get("signature"), data.get("schedule")
        stage = str(of.get("stage")) if isinstance(of, Mapping) else ""
        pipeline = str(how.get("pipeline")) if isinstance(how, Mapping) else ""
        signature = CombineSignature if stage == "combine" else PartialSignature
        schedule = SCHEDULES.get(stage, {}).get(pipeline, LoopsSchedule)
    return read_spec(data, OP, signature, schedule)
