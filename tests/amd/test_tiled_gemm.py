"""Our own GEMM kernels compile for MFMA and WMMA, keep everything in registers, and multiply by matrix instructions."""

from __future__ import annotations

import pytest

from tests import amd_toolchain
from tilewright.backends.hip.gemm.tiled import TiledSchedule
from tilewright.build import build_many
from tilewright.build.inspected import inspect_spec
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import accumulator
from tilewright.ops.gemm.spec import GemmSignature

pytestmark = pytest.mark.amd

KERNELS = [
    ("gfx1100", "fp16", "fp16", "rcr", (128, 128, 32), (4, 2, 1)),
    ("gfx1201", "fp8_e4m3", "fp8_e5m2", "rrr", (64, 64, 64), (2, 2, 1)),
    ("gfx908", "int8", "int8", "crr", (64, 64, 128), (2, 2, 1)),
    ("gfx90a", "fp8_e4m3", "fp8_e4m3", "ccr", (64, 64, 64), (2, 2, 1)),
    ("gfx950", "fp32", "fp32", "crr", (64, 64, 32), (2, 2, 1)),
]


def test_kernels_of_every_arch_keep_their_promises() -> None:
    specs = [
        KernelSpec(
            "gemm",
            GemmSignature(
                "standard", a, b, accumulator(a), *(("int32",) * 2 if a == "int8" else ("fp32",) * 2), layout
            ),
            TiledSchedule(tile, grid),
            arch,
        )
        for arch, a, b, layout, tile, grid in KERNELS
    ]
    with amd_toolchain.in_force():
        built = build_many(specs)
        for spec in specs:
            assert built[spec.digest].manifest["promises"] == "kept"
            for function in inspect_spec(spec).functions:
                assert function.resources is not None
                assert (function.resources.vgpr_spills, function.resources.scratch_bytes) == (0, 0)


@pytest.mark.parametrize(("dtype", "layout", "deep"), [("int8", "rcr", 64), ("fp16", "rrr", 32)])
def test_large_tiles_keep_matrix_units_busy_by_the_model(dtype: str, layout: str, deep: int) -> None:
    """Of bytes that went to LDS one by one it was 0.35, of loads of B that waited for A's 0.58."""
    out = "int32" if dtype == "int8" else dtype
    signature = GemmSignature("standard", dtype, dtype, accumulator(dtype), out, out, layout)
    spec = KernelSpec("gemm", signature, TiledSchedule((128, 128, deep), (2, 2, 1), stages=2), "gfx950")
    with amd_toolchain.in_force():
        assert build_many([spec])[spec.digest].manifest["code_model"]["matrix_issue"] >= 0.8
