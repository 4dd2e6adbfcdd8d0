"""Real convolution kernels through the compiler: what they load, and that none spills.

One takes half a minute of a core, so there are three, a direction each.  What they compute is shown by
tests/amd_emulated.
"""

from __future__ import annotations

import pytest

from tests import amd_toolchain
from tilewright.build import build_many
from tilewright.build.inspected import inspect_spec
from tilewright.inspect import demand_promises
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.amd_schedules import CkTileConvSchedule
from tilewright.ops.conv.spec import ConvSignature

pytestmark = pytest.mark.amd

WIDE = KernelSpec(
    "conv",
    ConvSignature("forward", 2, "fp16", "fp32", "fp16", "fp16"),
    CkTileConvSchedule("compv3", (128, 64, 32), (32, 32, 16), (2, 2, 1)),
    "gfx942",
)
NARROW = KernelSpec(
    "conv",
    ConvSignature("backward_data", 3, "bf16", "fp32", "bf16", "bf16"),
    CkTileConvSchedule("compv4", (64, 64, 32), (16, 16, 16), (2, 2, 1), (2, 2, 8)),
    "gfx90a",
)
SPLIT = KernelSpec(
    "conv",
    ConvSignature("backward_weight", 2, "bf16", "fp32", "bf16", "bf16"),
    CkTileConvSchedule("mem", (64, 64, 32), (16, 16, 32), (2, 2, 1), split_k=8),
    "gfx950",
)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    with amd_toolchain.in_force():
        build_many([WIDE, NARROW, SPLIT])


@pytest.mark.parametrize("spec", [WIDE, NARROW, SPLIT], ids=lambda one: one.signature.variant)
def test_they_multiply_with_matrix_instructions_and_keep_to_registers(spec: KernelSpec) -> None:
    found = demand_promises(inspect_spec(spec))
    assert found.keeps_promises is True
    for one in found.functions:
        assert one.resources is not None
        assert (one.resources.vgpr_spills, one.resources.scratch_bytes) == (0, 0)


@pytest.mark.parametrize(("spec", "width"), [(WIDE, 16), (NARROW, 4), (SPLIT, 16)], ids=["wide", "narrow", "split"])
def test_operands_are_loaded_as_wide_as_the_kernel_was_made_for(spec: KernelSpec, width: int) -> None:
    """CK Tile's own windows of a convolution load two bytes at a time.  Parts of split sums are added in other code."""
    for one in inspect_spec(spec).functions:
        if "conv_block" in one.symbol:
            assert one.instructions is not None
            assert set(one.instructions.loads) == {width}, one.symbol
