"""loops: plain loops, for any element types, strides and alignment; the fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cuda.gemm.shared import CudaGemmFamily, tensor_tiles, tile_numbers
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.spec import GemmSignature


class Loops(CudaGemmFamily):
    name = "loops"
    schedules = (GpuLoopsSchedule,)
    header = "gpu/gemm_loops.h"
    dual = True

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[GpuLoopsSchedule]:
        """Where no faster kernel of a pool serves a problem, this one does."""
        only = pool == "tiny" and not tensor_tiles(signature, arch)
        if signature.variant != "preshuffle" and (pool in ("default", "tests") or only):
            yield GpuLoopsSchedule()

    def violations(self, signature: GemmSignature, schedule: GpuLoopsSchedule, arch: Arch) -> Iterator[Violation]:
        yield from self.unpacked(signature)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return tile_numbers(spec.schedule.tile)

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()


FAMILY = Loops()
