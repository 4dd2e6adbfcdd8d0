"""Attention's gradients on AMD GPUs: every GPU has the fallback, and the stages that memory decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.arch import all_archs
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.ops import op
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, normalized
from tilewright.ops.base import KernelSpec

OP = op("attention_backward")
AMD = sorted(name for name, one in all_archs().items() if one.backend == "hip")
EVERYTHING = AttentionBackwardSignature("grad", "fp32", 192, 128, "generic", "tensor", "fp32", True, True, True, True,
                                        dbias=True, accumulate="all")  # fmt: skip


@pytest.mark.parametrize("name", AMD)
def test_every_amd_gpu_has_the_fallback(name: str) -> None:
    for family in ("dot", "grad", "convert"):
        signature = normalized(replace(EVERYTHING, family=family))
        assert OP.check(KernelSpec(OP.name, signature, LoopsSchedule(), name)) == []
        rules = [one.rule for one in OP.check(KernelSpec(OP.name, signature, RowsSchedule(), name))]
        assert rules == (["pipeline-family"] if family == "grad" else [])
