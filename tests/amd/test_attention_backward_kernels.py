"""Attention's gradients for AMD GPUs through the whole path: built, inspected and loaded.  What they compute is shown
by tests/amd_emulated.

One instance of CK Tile takes most of a minute of a core, so there is one of each stage; the others are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests import amd_toolchain
from tilewright.arch import arch
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.backends.hip.attention_backward.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.attention_backward.ck_tile.tiles import CkRowsSchedule
from tilewright.build import build_many
from tilewright.build.builder import Artifact
from tilewright.build.inspected import inspect_spec
from tilewright.ops.attention_backward.schedule import LoopsSchedule
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.amd

OP = "attention_backward"
EVERYTHING = AttentionBackwardSignature("grad", "bf16", 64, 64, "generic", "tensor", "fp32", masked=True, softcap=True,
                                        dropout=True, varlen=True, dbias=True)  # fmt: skip
DOT = AttentionBackwardSignature("dot", "fp16", 128, 128, dlse=True, dsink=True)
CONVERT = AttentionBackwardSignature("convert", "bf16", 64, 128, accumulate="all")
TILED = AttentionBackwardSignature("grad", "bf16", 64, 64, mask="window", varlen=True, accumulate="all")
SPECS = [
    *(KernelSpec(OP, EVERYTHING, LoopsSchedule(), one) for one in ("gfx908", "gfx942", "gfx1100", "gfx1201")),
    *(KernelSpec(OP, one, RowsSchedule(), "gfx942") for one in (DOT, CONVERT)),
    KernelSpec(OP, DOT, CkRowsSchedule("dot_do_o"), "gfx942"),
    KernelSpec(OP, replace(CONVERT, head_dim_v=64), CkRowsSchedule("convert_dq", deterministic=True), "gfx942"),
    KernelSpec(OP, TILED, next(CK_TILE.proposals("default", TILED, arch("gfx942"))), "gfx942"),
]


@pytest.fixture(scope="module")
def built() -> Mapping[str, Artifact]:
    with amd_toolchain.in_force():
        return build_many(SPECS)


@pytest.mark.parametrize("spec", SPECS, ids=lambda one: f"{one.signature.family} {one.schedule.pipeline} {one.arch}")
def test_kernels_build_and_keep_nothing_in_memory(spec: KernelSpec, built: Mapping[str, Artifact]) -> None:
    multiplies = spec.signature.family == "grad" and spec.schedule.pipeline != "loops"
    assert built[spec.digest].manifest["promises"] == ("kept" if multiplies else "nothing promised")
    with amd_toolchain.in_force():
        found = inspect_spec(spec)
    resources = [one.resources for one in found.functions if one.resources is not None]
    assert resources
    if multiplies:
        assert not any(one.scratch_bytes or one.vgpr_spills or one.sgpr_spills for one in resources), resources
