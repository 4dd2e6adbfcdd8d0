"""loops: the plain loops that CUDA has too: any element types, strides and alignment, on every GPU; the fallback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arch import Arch
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip.ck_tile_rules import ck_tile_rules
from tilewright.backends.hip.gemm.shared import HipGemmFamily, tile_numbers
from tilewright.backends.hip.gemm.tiled import matrix_rules
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.spec import GemmSignature

COMPILE_MEMORY = 300 << 20


class Loops(HipGemmFamily):
    name = "loops"
    schedules = (GpuLoopsSchedule,)
    template = ("tilewright.backends.hip.gemm.loops", "loops.hpp.jinja")

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[GpuLoopsSchedule]:
        """Where no matrix kernel is, and in the pools that are there to try everything or little."""
        alone = all(next(rules(signature, arch), None) is not None for rules in (ck_tile_rules, matrix_rules))
        if signature.variant != "preshuffle" and (alone or pool in ("tiny", "tests")):
            yield GpuLoopsSchedule()

    def violations(self, signature: GemmSignature, schedule: GpuLoopsSchedule, arch: Arch) -> Iterator[Violation]:
        if signature.variant == "preshuffle":
            yield Violation("amd-packed", "the loops read B as it is, not packed", "give b unpacked")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return tile_numbers(spec.schedule.tile)

    def pack_format(self, schedule: GpuLoopsSchedule) -> tuple[object, ...]:
        return schedule.warp_tile[1:]

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


FAMILY = Loops()
