"""GEMM's part of the proof by execution."""

from __future__ import annotations

from typing import Any

from tests.amd_emulated.gemm import calls, drawing
from tests.amd_emulated.proving import Call, Entry
from tilewright.ops.base import KernelSpec


class GemmProving:
    def draw(self, seed: int, index: int) -> Entry:
        return drawing.draw(seed, index)

    def problem(self, data: dict[str, Any]) -> drawing.Drawn:
        return drawing.from_dict(data)

    def plain(self, spec: KernelSpec, seed: int) -> drawing.Drawn:
        return drawing.plain(spec, seed)

    def inputs(self, spec: KernelSpec) -> str:
        s = spec.signature
        return str(s.dtype_a) if s.dtype_a == s.dtype_b else f"{s.dtype_a} x {s.dtype_b}"

    def prepare(self, spec: KernelSpec, problem: drawing.Drawn) -> Call:
        return calls.prepare(spec, problem)


PROVING = GemmProving()
