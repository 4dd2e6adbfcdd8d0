"""The kernels of attention's gradients that are executed: every family of them, and what they have.

A case is a signature and which kernel of the default pool of a family computes it; problems are drawn for it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.amd_emulated.attention_backward.drawing import OP, Drawn, attempts
from tilewright.arch import arch as arch_by_name
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.backends.hip.attention_backward.ck_rows import FAMILY as CK_ROWS
from tilewright.backends.hip.attention_backward.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.attention_backward.tiled import FAMILY as TILED
from tilewright.ops import op
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec

Signature = AttentionBackwardSignature


@dataclass(frozen=True, slots=True)
class Case:
    """What is shown by a kernel."""

    shows: str
    signature: Signature
    arch: str = "gfx942"
    family: str = "ck_tile"
    pick: int = 0  # of what CK Tile's default pool has, or the full one where it has none there

    @property
    def label(self) -> str:
        return f"{self.shows}, {self.arch}"

    @property
    def spec(self) -> KernelSpec:
        own: Any = {"loops": LoopsSchedule(), "rows": RowsSchedule()}.get(self.family)
        if self.family == "tiled":
            own = next(iter(TILED.proposals("default", self.signature, arch_by_name(self.arch))))
        if own is not None:
            return KernelSpec(OP, self.signature, own, self.arch)
        family, pool = (CK_ROWS, "full") if self.family == "ck_rows" else (CK_TILE, "default")
        proposed: list[Any] = list(family.proposals(pool, self.signature, arch_by_name(self.arch)))
        return KernelSpec(OP, self.signature, proposed[self.pick], self.arch)


def drawn(case: Case, seed: int, count: int) -> list[Drawn]:
    """Problems that the case's kernel serves, drawn by the seed."""
    rng, spec = random.Random(f"attention_backward {seed} {case.label}"), case.spec
    served = (one for one in attempts(rng, spec) if not op(OP).supports(spec, one.problem))
    return [one for _, one in zip(range(count), served, strict=False)]


def cases() -> list[Case]:
    grad = Signature("grad", "fp16", 64, 64, accumulate="dq")
    everything = Signature("grad", "bf16", 32, 32, "generic", "tensor", "fp32", masked=True, softcap=True,
                           dropout=True, varlen=True, dbias=True)  # fmt: skip
    return [
        Case("loops with everything", everything, family="loops"),
        Case("loops with everything", everything, "gfx1100", family="loops"),
        Case("loops, slopes of fp32", Signature("grad", "fp32", 32, 64, "window", "alibi", dalibi=True),
             "gfx1201", family="loops"),
        Case("dot, with dlse and sinks", Signature("dot", "fp16", 128, 128, varlen=True, dlse=True, dsink=True),
             family="rows"),
        Case("dot", Signature("dot", "bf16", 64, 64), "gfx1100", family="rows"),
        Case("convert all", Signature("convert", "bf16", 64, 128, varlen=True, accumulate="all"), "gfx90a",
             family="rows"),
        Case("dot_do_o, packed, with dlse and sinks", Signature("dot", "bf16", 64, 64, varlen=True, dlse=True,
                                                                 dsink=True), family="ck_rows"),
        Case("dot_do_o, edge code of heads", Signature("dot", "fp16", 128, 128), "gfx90a", family="ck_rows", pick=1),
        Case("convert_dq in parts", Signature("convert", "bf16", 64, 64, accumulate="all"), family="ck_rows", pick=1),
        Case("convert_dq", Signature("convert", "fp16", 128, 128, accumulate="dq"), family="ck_rows"),
        Case("a bias's gradient", Signature("grad", "fp16", 64, 64, bias="tensor", dtype_aux="fp16", dbias=True),
             "gfx90a", family="tiled"),
        Case("gradients of slopes", Signature("grad", "bf16", 64, 64, "window", "alibi", dalibi=True), "gfx1100",
             family="tiled"),
        Case("heads of 512, staged", Signature("grad", "bf16", 512, 512, "generic"), "gfx1201", family="tiled"),
        Case("shares that are not whole, staged", Signature("grad", "fp16", 576, 512, "window"), "gfx1100",
             family="tiled"),
        Case("fp32 heads of 256, staged", Signature("grad", "fp32", 256, 256, masked=True), "gfx90a", family="tiled"),
        Case("iglp", grad),
        Case("iglp with a window", Signature("grad", "fp16", 64, 64, mask="window", accumulate="dq")),
        Case("packed, dropout, heads of 128", Signature("grad", "bf16", 128, 128, "window", dropout=True, varlen=True,
                                                        accumulate="all"), "gfx90a"),
        Case("ALiBi in one order", Signature("grad", "bf16", 64, 64, "window", "alibi", accumulate="all"), pick=1),
        Case("a bias", Signature("grad", "fp16", 64, 64, bias="tensor", dtype_aux="fp16", accumulate="dq")),
        Case("bias and dropout in one order", Signature("grad", "bf16", 32, 32, "window", "tensor", "bf16",
                                                        dropout=True, accumulate="all"), "gfx90a", pick=1),
        Case("heads of 256", Signature("grad", "bf16", 256, 256, accumulate="dq")),
        Case("heads of 32", Signature("grad", "fp16", 32, 32, "window", accumulate="all"), "gfx90a"),
    ]  # fmt: skip
