"""width_folded: tma_ws of few channels (images), of which pixels of a row make many in a copy.

padded_width_folded: the same in copies of what else is not contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.copies import WHERE_APART, Needs
from tilewright.backends.cuda.conv.shared import CudaConvFamily, Fields
from tilewright.backends.cuda.conv.tma_ws import (
    WEIGHTS,
    ConvTmaWsSchedule,
    Tiles,
    tiled,
    tiled_numbers,
    tma_ws_config,
    tma_ws_promises,
    tma_ws_violations,
)
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields


@renamed_fields({}, {"pipeline": {"folded": "width_folded", "padded_folded": "padded_width_folded"}})
@dataclass(frozen=True, slots=True)
class WidthFoldedSchedule(ConvTmaWsSchedule):
    """tma_ws over pixels of many channels."""

    pipelines: ClassVar[tuple[str, ...]] = ("width_folded", "padded_width_folded")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {**ConvTmaWsSchedule.choices, "pipeline": pipelines}

    def by_rows(self, signature: ConvSignature) -> bool:
        """Folded partial sums of backward_data are stored as floats."""
        return False


# Few filters; of backward_data, few taps along the width times channels.
_FOLDED: Tiles = (
    (128, 64, 8, (1, 1), "pingpong", "data_parallel"),
    (192, 64, 6, (1, 1), "pingpong", "data_parallel"),
    (256, 32, 5, (1, 1), "cooperative", "data_parallel"),
    (256, 64, 5, (1, 1), "cooperative", "data_parallel"),
    (256, 128, 4, (1, 1), "cooperative", "data_parallel"),
)
_FOLDED_DATA: Tiles = (
    (128, 16, 12, (1, 1), "pingpong", "data_parallel"),
    (128, 32, 10, (1, 1), "pingpong", "data_parallel"),
    (128, 64, 8, (1, 1), "pingpong", "data_parallel"),
    (256, 16, 5, (1, 1), "cooperative", "data_parallel"),
    (256, 32, 5, (1, 1), "cooperative", "data_parallel"),
    (256, 64, 5, (1, 1), "cooperative", "data_parallel"),
)
_FOLDED_WEIGHTS: Tiles = tuple(tile for tile in WEIGHTS if tile[3] == (1, 1) and tile[5] == "split_k")


def _proposals(signature: ConvSignature, arch: Arch) -> Iterator[WidthFoldedSchedule]:
    if not {"wgmma", "tma"} <= arch.features or DTYPES[signature.dtype].bytes != 2:
        return
    tiles = {"forward": _FOLDED, "backward_data": _FOLDED_DATA, "backward_weight": _FOLDED_WEIGHTS}[signature.variant]
    if signature.variant == "backward_data":  # accumulators of a forward one, as floats
        signature = replace(signature, variant="forward", dtype_out="fp32")
    schedules = [
        WidthFoldedSchedule("width_folded", h.tile, h.stages, h.cluster, h.grouping, h.tile_scheduler, h.store)
        for h in tiled(signature, tiles, arch)
    ]
    yield from schedules
    yield from (replace(h, pipeline="padded_width_folded") for h in schedules)


def _product(variant: str) -> str:
    """The direction whose matrix product it is: folded, backward_data is a forward one."""
    return "forward" if variant == "backward_data" else variant


class Folded(CudaConvFamily):
    name = "width_folded"
    schedules = (WidthFoldedSchedule,)
    host = "HostConvWidthFolded"
    beside = ("_pixels", "_weights")
    copies: ClassVar[Mapping[str, int]] = {"padded_width_folded": WHERE_APART}

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[WidthFoldedSchedule]:
        return _proposals(signature, arch)

    def violations(self, signature: ConvSignature, schedule: WidthFoldedSchedule, arch: Arch) -> Iterator[Violation]:
        yield from tma_ws_violations(signature, _product(signature.variant), schedule, arch)
        if DTYPES[signature.dtype].bytes != 2:
            message = f"{schedule.pipeline} has two-byte elements, not {signature.dtype}"
            yield Violation("nv-inputs", message, "use bf16 or fp16")
        if schedule.store == "tma" and signature.variant == "backward_data":
            yield Violation("nv-tma-store", "backward_data stores its folded sums as fp32", "use the direct store")
        if schedule.merged:
            yield Violation("nv-groups", "width_folded kernels have one group", "leave merged out")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return tiled_numbers(spec.schedule) | {"copies": self.copies_of(spec.schedule)}

    def config(self, spec: KernelSpec) -> Fields:
        return tma_ws_config(spec.schedule)

    def needs(self, schedule: WidthFoldedSchedule) -> Needs:
        return Needs(any_pixels=True)

    def promises(self, spec: KernelSpec) -> Promises:
        return tma_ws_promises(_product(spec.signature.variant), spec.schedule, spec.arch)


FAMILY = Folded()
