"""Attention by mma.sync and by fp8, compiled without a GPU: the instructions that were promised are there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.built import Built
from tests.emulated_hopper.test_attention import like
from tests.emulated_hopper.test_attention_mma import fp8
from tilewright.backends.base import backend
from tilewright.backends.cuda.attention.combine import CombineSchedule
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.mla import MlaSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.inspect import demand_promises
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention import AttentionProblem

pytestmark = pytest.mark.tools  # a CUDA compiler

ATTENTION = op("attention")
CASES: dict[str, tuple[AttentionProblem, Any, str]] = {
    "causal": (like(128, window_right=0), MmaSchedule("mma", 32, 4, 2, 2, 4), "sm_80"),
    "latent_by_wgmma": (like(576, 512, family="split", num_splits=2), MlaSchedule(64, 2), "sm_90a"),
    "mla": (like(576, 512, family="split", num_splits=2), MmaSchedule("mma_decode", 32, 4, 2, 1, 4), "sm_90a"),
    "fp8": (fp8(128, window_right=0), Fp8Schedule(192, 2, 2), "sm_90a"),
    # It asked for griddepcontrol, which there is from sm_90 on.
    "combine_on_ampere": (like(128, family="combine", num_splits=2, dtype_out="bf16"), CombineSchedule(4), "sm_80"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_code_is_as_promised(built: Built, name: str) -> None:
    first, schedule, target = CASES[name]
    spec = KernelSpec("attention", first.signature, schedule, target)
    assert ATTENTION.check(spec) == []
    found = demand_promises(backend("cuda").inspect(built.artifact(spec).path, spec))
    assert found.keeps_promises is not False
