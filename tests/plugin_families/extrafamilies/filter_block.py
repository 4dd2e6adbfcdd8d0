"""Convolution on the CPU, forward, fp32: a block of filters for each pixel of the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import KernelFamily, KernelsDefaults
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv import ConvProblem, ConvSignature
from tilewright.ops.conv.family import ConvFamily
from tilewright.ops.families import ScheduleDefaults

BLOCKS = (4, 8)


@dataclass(frozen=True, slots=True)
class FilterBlockSchedule(ScheduleDefaults):
    pipeline: str = field(default="filter_block", init=False)
    block: int  # filters that are summed at a time

    pipelines: ClassVar[tuple[str, ...]] = ("filter_block",)

    def label(self) -> str:
        return f"filter_block{self.block}"


class FilterBlock(KernelsDefaults, ConvFamily):
    schedules: tuple[type[Any], ...] = (FilterBlockSchedule,)
    template = ("extrafamilies", "templates/filter_block.cpp.jinja")

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[FilterBlockSchedule]:
        if signature.variant == "forward" and signature.dtype == "fp32":
            yield from (FilterBlockSchedule(block) for block in BLOCKS)

    def violations(self, signature: ConvSignature, schedule: FilterBlockSchedule, arch: Arch) -> Iterator[Violation]:
        if signature.variant != "forward" or signature.dtype != "fp32" or signature.dtype_out != "fp32":
            yield Violation("filter-block-signature", f"{signature.label()} is not forward in fp32", "use fp32 forward")
        if signature.epilogue != "PassThrough" or signature.num_d:
            yield Violation("filter-block-fused", "the kernel fuses nothing", "use epilogue PassThrough")
        if schedule.block not in BLOCKS:
            yield Violation("filter-block-size", f"block is {schedule.block}", f"use {' or '.join(map(str, BLOCKS))}")

    def limits(self, spec: KernelSpec, problem: ConvProblem) -> Iterator[Violation]:
        schedule: FilterBlockSchedule = spec.schedule
        if problem.group_filters % schedule.block:
            message = f"{problem.group_filters} filters a group are no multiple of {schedule.block}"
            yield Violation("filter-block-filters", message, "use another kernel")

    def include_dirs(self) -> tuple[Path, ...]:
        return (Path(__file__).parent / "include",)

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        schedule: FilterBlockSchedule = spec.schedule
        return float(1e-6 + problem.flops / (2e9 * schedule.block**0.5))


FAMILY: KernelFamily = FilterBlock()
