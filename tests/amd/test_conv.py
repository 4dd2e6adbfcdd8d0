"""Real convolution kernels through the compiler: what they load, and that none spills.

One of CK Tile takes half a minute of a core, so there are four; those of RDNA a few seconds.  What they compute is
shown by tests/amd_emulated.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import amd_toolchain
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.build import build_many
from tilewright.build.inspected import inspect_spec
from tilewright.inspect import demand_promises
from tilewright.ops.base import KernelSpec
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
COPIES = replace(WIDE, schedule=replace(WIDE.schedule, special="copied"), arch="gfx90a")
WMMA = KernelSpec(
    "conv",
    ConvSignature("forward", 2, "fp16", "fp32", "fp16", "fp16"),
    TiledConvSchedule("wmma", (128, 128, 32), (4, 2, 1)),
    "gfx1100",
)
OTHER_WMMA = KernelSpec(
    "conv",
    ConvSignature("backward_weight", 3, "bf16", "fp32", "bf16", "bf16"),
    TiledConvSchedule("wmma", (64, 64, 32), (2, 2, 1), (1, 1, 8), split_k=16),
    "gfx1201",
)
FMA = KernelSpec(
    "conv",
    ConvSignature("backward_data", 3, "fp32", "fp32", "fp32", "fp32"),
    TiledConvSchedule("fma", (128, 64, 16), (4, 2, 1), (1, 1, 4)),
    "gfx1100",
)
MFMA = KernelSpec(
    "conv",
    ConvSignature("forward", 2, "bf16", "fp32", "bf16", "bf16"),
    TiledConvSchedule("mfma", (128, 128, 32), (2, 2, 1)),
    "gfx908",
)
FP32_MFMA = KernelSpec(
    "conv",
    ConvSignature("backward_weight", 2, "fp32", "fp32", "fp32", "fp32"),
    TiledConvSchedule("mfma", (64, 64, 16), (1, 2, 1), (4, 4, 4), split_k=4),
    "gfx950",
)
ALL = [WIDE, NARROW, SPLIT, COPIES, WMMA, OTHER_WMMA, FMA, MFMA, FP32_MFMA]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    with amd_toolchain.in_force():
        build_many(ALL)


@pytest.mark.parametrize("spec", ALL, ids=lambda one: f"{one.schedule.pipeline} {one.arch}")
def test_they_multiply_with_matrix_instructions_and_keep_to_registers(spec: KernelSpec) -> None:
    found = demand_promises(inspect_spec(spec))
    assert found.keeps_promises is (None if spec is FMA else True), "multiply-adds promise none"
    for one in found.functions:
        assert one.resources is not None
        assert (one.resources.vgpr_spills, one.resources.scratch_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("spec", "width"), [(WIDE, 16), (NARROW, 4), (SPLIT, 16), (COPIES, 16)], ids=["wide", "narrow", "split", "copies"]
)
def test_operands_are_loaded_as_wide_as_the_kernel_was_made_for(spec: KernelSpec, width: int) -> None:
    """CK Tile's own windows of a convolution load two bytes at a time.  Parts of split sums are added in other code."""
    for one in inspect_spec(spec).functions:
        if "conv_block" in one.symbol:
            assert one.instructions is not None
            assert set(one.instructions.loads) == {width}, one.symbol
