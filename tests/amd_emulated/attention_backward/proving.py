"""The part of attention's gradients of the proof by execution."""

from __future__ import annotations

from typing import Any

from tests.amd_emulated.attention_backward import calls, drawing
from tests.amd_emulated.proving import Call, Entry
from tilewright.ops.base import KernelSpec


class AttentionBackwardProving:
    def draw(self, seed: int, index: int) -> Entry:
        return drawing.draw(seed, index)

    def problem(self, data: dict[str, Any]) -> drawing.Drawn:
        return drawing.from_dict(data)

    def plain(self, spec: KernelSpec, seed: int) -> drawing.Drawn:
        return drawing.plain_problem(spec, seed)

    def inputs(self, spec: KernelSpec) -> str:
        s = spec.signature
        heads = str(s.head_dim) if s.head_dim == s.head_dim_v else f"{s.head_dim}/{s.head_dim_v}"
        return f"{s.family} {s.dtype} heads of {heads}"

    def prepare(self, spec: KernelSpec, problem: drawing.Drawn) -> Call:
        return calls.prepare(spec, problem)


PROVING = AttentionBackwardProving()
