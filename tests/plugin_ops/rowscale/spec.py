"""What a rowscale kernel computes, how, and what a user has at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import dtype
from tilewright.ops.base import KernelSpec, read_spec, settle
from tilewright.ops.pooling import demand_known

OP = "rowscale"
DTYPES = ("fp32", "bf16")  # of x and y; scale is fp32
ACTIVATIONS = ("PassThrough", "Relu", "Silu")


@dataclass(frozen=True, slots=True)
class Signature:
    """Kernels with equal signatures are interchangeable."""

    dtype: str
    activation: str = "PassThrough"

    def label(self) -> str:
        return self.dtype if self.activation == "PassThrough" else f"{self.dtype}_{self.activation}"


@dataclass(frozen=True, slots=True)
class LoopsSchedule:
    """Plain loops: the floor on a CPU."""

    pipeline: str = field(default="loops", init=False)

    def label(self) -> str:
        return self.pipeline


@dataclass(frozen=True, slots=True)
class VectorSchedule:
    """A CPU's vectors along a row; a thread takes `rows` rows at a time."""

    pipeline: str = field(default="vector", init=False)
    unroll: int = 1  # vectors per iteration of the loop
    rows: int = 1
    edge: bool = True  # code for the elements that are left over of an iteration

    def label(self) -> str:
        return f"{self.pipeline}_{self.unroll}x{self.rows}" + ("" if self.edge else "_noedge")


@dataclass(frozen=True, slots=True)
class BlockSchedule:
    """A GPU's block along a row: `threads` threads, each `items` elements a turn."""

    pipeline: str = field(default="block", init=False)
    threads: int = 256
    items: int = 1

    def label(self) -> str:
        return f"{self.pipeline}_{self.threads}x{self.items}"


Schedule = LoopsSchedule | VectorSchedule | BlockSchedule
SCHEDULES = (LoopsSchedule, VectorSchedule, BlockSchedule)
FAMILIES: dict[str, tuple[type[Any], ...]] = {
    "cpu": (LoopsSchedule, VectorSchedule),
    "nvidia": (BlockSchedule,),
    "cdna": (BlockSchedule,),
    "rdna": (BlockSchedule,),
}


@dataclass(frozen=True, slots=True)
class RowscaleProblem:
    """Strides of 0 mean dense rows."""

    op: ClassVar[str] = OP

    rows: int
    columns: int
    dtype: str = "fp32"
    activation: str = "PassThrough"
    x_stride: int = 0
    y_stride: int = 0

    def __post_init__(self) -> None:
        settle(self)
        for name in ("x_stride", "y_stride"):
            if not getattr(self, name):
                object.__setattr__(self, name, max(1, self.columns))

    @property
    def signature(self) -> Signature:
        return Signature(self.dtype, self.activation)

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.columns

    @property
    def bytes(self) -> int:
        return 2 * self.rows * self.columns * dtype(self.dtype).bytes + 4 * self.rows

    def dense(self) -> RowscaleProblem:
        return replace(self, x_stride=0, y_stride=0)

    def describe(self) -> str:
        return f"rowscale rows={self.rows} columns={self.columns} {self.signature.label()}"


def schedule_class(arch: str, given: Mapping[str, Any]) -> type[Any]:
    """The dataclass of a schedule, by its pipeline."""
    known = {one().pipeline: one for one in FAMILIES.get(arch_by_name(arch).family, ())}
    pipeline = str(given.get("pipeline"))
    demand_known("pipeline-name", f"rowscale pipeline of {arch}", [pipeline], list(known))
    return known[pipeline]


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    return read_spec(data, OP, Signature, schedule_class)
