"""depthwise_mma: gradients of depthwise weights of up to 7x8 taps, pixel by pixel, by matrix instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields, needs_features
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature


@dataclass(frozen=True, slots=True)
class DepthwiseMmaSchedule:
    """Gradients of weights, a filter for each channel: 16 pixels of a row, two rows of results, eight rows of x."""

    pipeline: str = field(default="depthwise_mma", init=False)
    stages: int  # tiles of whole rows under way

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise_mma",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"depthwise_mma_stages{self.stages}"


def _proposals(signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseMmaSchedule]:
    """Tiles of more rows, or more of them under way."""
    if "tma" in arch.features and signature.variant == "backward_weight" and DTYPES[signature.dtype].bytes == 2:
        yield from (DepthwiseMmaSchedule(stages) for stages in (2, 3))


def _violations(signature: ConvSignature, schedule: DepthwiseMmaSchedule, arch: Arch) -> Iterator[Violation]:
    yield from needs_features(arch, "depthwise_mma", "tma")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} by matrix instructions"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if not 1 <= schedule.stages <= 4:
        yield Violation("nv-stages", f"{schedule.stages} stages", "use 1 to 4")


class DepthwiseMma(CudaConvFamily):
    name = "depthwise_mma"
    schedules = (DepthwiseMmaSchedule,)
    host = "HostConvDepthwiseMma"
    beside = ("_add",)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseMmaSchedule]:
        return _proposals(signature, arch)

    def violations(self, signature: ConvSignature, schedule: DepthwiseMmaSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {"stages": spec.schedule.stages, "shared_bytes": arch_by_name(spec.arch).scratch_bytes}

    def config(self, spec: KernelSpec) -> Fields:
        return {"stages": spec.schedule.stages}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARP, ("UTMALDG",))


FAMILY = DepthwiseMma()
