"""Our own GEMM kernels on AMD GPUs: as what elements are multiplied, and where no matrix kernel is and why."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tilewright.arch import all_archs
from tilewright.backends.hip.ck_tile_rules import ck_tile_rules
from tilewright.backends.hip.gemm.tiled import FAMILY, TiledSchedule, shape
from tilewright.backends.hip.matrix import lane_bytes
from tilewright.ops import KernelSpec, op
from tilewright.ops.gemm import GemmProblem, GemmSignature
from tilewright.ops.gemm.problem import accumulator
from tilewright.ops.gemm.spec import LAYOUTS

GEMM = op("gemm")
HIP = tuple(name for name, arch in all_archs().items() if arch.backend == "hip")
INPUTS = ("fp32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz")
MIXED = (("bf16", "fp16"), ("fp8_e4m3", "fp8_e5m2"), ("fp8_e4m3fnuz", "fp8_e5m2fnuz"), ("fp8_e4m3", "bf16"))
FP16 = GemmSignature("standard", "fp16", "fp16", "fp32", "fp16", "fp16", "rcr")


def signature(a: str, b: str, layout: str = "rcr") -> GemmSignature:
    out = "int32" if a == "int8" else "fp32"
    return GemmSignature("standard", a, b, accumulator(a), out, out, layout)


@pytest.mark.parametrize("arch", HIP)
def test_the_survey_has_loops_only_where_no_matrix_instruction_is(arch: str) -> None:
    """Every type and layout: a matrix kernel, or loops and the reason."""
    facts = all_archs()[arch]
    for (a, b), layout in product((*((dtype, dtype) for dtype in INPUTS), *MIXED), LAYOUTS):
        wanted = signature(a, b, layout)
        pipelines = {spec.schedule.pipeline for spec in GEMM.candidates(wanted, arch)}
        without_fp32 = not {"mfma", "wmma-fp32"} & facts.features
        if without_fp32 and ((a, b) == ("bf16", "fp16") or a == "fp32"):
            assert pipelines == {"loops"}, (a, b, layout)
            refused = GEMM.check(KernelSpec("gemm", wanted, TiledSchedule((64, 64, 64), (2, 2, 1)), arch))
            assert [violation.rule for violation in refused] == ["amd-matrix"]
            assert arch in refused[0].message
        else:
            assert pipelines, (a, b, layout)
            assert "loops" not in pipelines, (a, b, layout)
            assert "tiled" in pipelines, (a, b, layout)


@pytest.mark.parametrize(("arch", "a", "b", "as_"), [
    ("gfx942", "fp8_e4m3fnuz", "fp8_e5m2fnuz", ("fp8_e4m3fnuz", "fp8_e5m2fnuz")),
    ("gfx942", "fp8_e4m3", "fp8_e4m3", ("bf16", "bf16")),
    ("gfx90a", "fp8_e5m2fnuz", "fp8_e5m2fnuz", ("bf16", "bf16")),
    ("gfx1201", "fp8_e5m2", "fp8_e4m3", ("fp8_e5m2", "fp8_e4m3")),
    ("gfx1100", "fp8_e5m2", "fp8_e4m3", ("bf16", "bf16")),
    ("gfx950", "bf16", "fp16", ("fp32", "fp32")),
    ("gfx1100", "bf16", "fp16", None),
    ("gfx1100", "fp8_e4m3", "fp16", ("fp16", "fp16")),
    ("gfx90a", "fp8_e5m2", "fp16", ("fp32", "fp32")),  # its fp16 instructions take subnormals for zeros
    ("gfx908", "int8", "int8", ("int8", "int8")),
    ("gfx1250", "fp8_e4m3", "fp8_e5m2", ("fp8_e4m3", "fp8_e5m2")),
    ("gfx1250", "bf16", "fp16", ("fp32", "fp32")),
])  # fmt: skip
def test_elements_are_multiplied_as_a_type_that_has_their_numbers(
    arch: str, a: str, b: str, as_: tuple[str, str] | None
) -> None:
    assert shape.multiplied(signature(a, b), all_archs()[arch]) == as_


@pytest.mark.parametrize("arch", HIP)
def test_a_kernel_takes_any_size_stride_and_alignment(arch: str) -> None:
    for spec in GEMM.candidates(FP16, arch):
        if spec.schedule.pipeline != "tiled":
            continue
        for m, n, k in ((1, 1, 1), (37, 41, 53), (129, 7, 1000)):
            odd = GemmProblem(
                m, n, k, dtype_a="fp16", layout="rcr", batch=3, a_stride=k + 3, b_stride=k + 1, c_stride=n + 5,
                aligned=False, beta=True,
            )  # fmt: skip
            assert GEMM.supports(spec, odd) == []


@pytest.mark.parametrize("arch", HIP)
def test_a_packed_b_is_read_wherever_there_is_an_instruction(arch: str) -> None:
    """CK Tile's order where it has a kernel, else columns: any layout, size and alignment."""
    for dtype, layout in product(("fp16", "bf16", "int8", "fp8_e4m3", "fp8_e4m3fnuz"), LAYOUTS):
        wanted = replace(signature(dtype, dtype, layout), variant="preshuffle")
        if layout != "rcr" and next(ck_tile_rules(wanted, all_archs()[arch]), None) is None:
            continue  # CK Tile's order has one layout
        found = {spec.schedule.pipeline for spec in GEMM.candidates(wanted, arch)}
        assert found in ({"tiled"}, {"preshuffle"}), (dtype, layout)
        floor = GEMM.fallback_spec(wanted, arch)
        assert GEMM.check(floor) == []
        if floor.schedule.pipeline == "tiled":
            odd = GemmProblem(37, 41, 53, dtype_a=dtype, dtype_c=wanted.dtype_c, layout=layout, preshuffled=True)
            assert GEMM.supports(floor, odd) == []


def test_what_nothing_else_takes_as_it_lies_is_served_without_copies() -> None:
    odd = GemmProblem(1000, 1000, 1001, dtype_a="fp16", layout="rcr", aligned=False)
    serving = [spec for spec in GEMM.candidates(FP16, "gfx942") if not GEMM.supports(spec, odd)]
    assert "tiled" in {spec.schedule.pipeline for spec in serving}


def test_a_lane_reads_as_much_as_the_depth_of_a_tile_has() -> None:
    gfx942, gfx1100, gfx1201 = (all_archs()[name] for name in ("gfx942", "gfx1100", "gfx1201"))
    assert lane_bytes("fp16", gfx942, 32) == 16  # two instructions of 16 deep
    assert lane_bytes("fp16", gfx942, 16) == 8
    assert lane_bytes("fp16", gfx1100, 32) == 32  # lanes 16 to 31 hold the same
    assert lane_bytes("int8", gfx1201, 64) == 16
    assert lane_bytes("int8", gfx1201, 16) == 8


def test_a_model_prefers_large_tiles_for_large_products_and_parts_of_k_for_long_ones() -> None:
    def chosen(m: int, n: int, k: int) -> TiledSchedule:
        problem = GemmProblem(m, n, k, dtype_a="fp16", layout="rcr")
        wanted = replace(FP16, dtype_c=problem.dtype_c, dtype_d=problem.dtype_d)
        specs = [spec for spec in GEMM.candidates(wanted, "gfx1100") if spec.schedule.pipeline == "tiled"]
        best: TiledSchedule = min(specs, key=lambda spec: FAMILY.estimate(spec, problem, 1)).schedule
        return best

    assert chosen(8192, 8192, 8192).tile[0] >= 128
    assert chosen(64, 64, 65536).split_k > 1
