"""AMD pools and preselected sets: only legal kernels come out, and enough of them."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.arch import all_archs
from tilewright.codegen import SpecSet, collect
from tilewright.ops import op
from tilewright.ops.encodings import element_type
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.pools import POOLS
from tilewright.ops.gemm.preselected import PreselectedSet
from tilewright.ops.gemm.spec import LAYOUTS

GEMM = op("gemm")
ARCHS = ("gfx90a", "gfx942", "gfx950")
# Name and number of kernels, as users of CK Tile's dispatcher know them.
SETS = {
    "fp16_rcr_compute": 7, "fp16_rcr_memory": 8, "fp16_rcr_latency": 2, "fp16_rcr_multi_d": 8,
    "fp16_rcr_preshuffle": 2, "fp16_rcr_all": 27, "fp16_rcr_essential": 6, "bf16_rcr_essential": 2,
    "int8_rcr_essential": 2, "fp8_rcr_essential": 2, "mixed_precision": 2,
}  # fmt: skip


def inputs(arch: str) -> tuple[str, ...]:
    fnuz = "fnuz" if "fp8-fnuz" in all_archs()[arch].features else ""
    one_byte = (f"fp8_e4m3{fnuz}", f"fp8_e5m2{fnuz}", "int8")
    return ("fp16", "bf16") if arch == "gfx90a" else ("fp16", "bf16", *one_byte)


def demand_sound(selection: SpecSet) -> None:
    for spec in selection.specs:
        assert GEMM.check(spec) == [], spec.name
    assert len({spec.name for spec in selection.specs}) == len(selection.specs)
    for rejection in selection.rejected:
        assert all(one.rule and one.message and one.remedy for one in rejection.violations)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("pool", ["tiny", "tests", "default"])
def test_a_small_pool_serves_every_datatype_layout_and_variant(pool: str, arch: str) -> None:
    for datatype, layout, variant in product(inputs(arch), LAYOUTS, ("standard", "multi_d", "preshuffle")):
        axes = {"datatypes": [datatype], "layouts": [layout], "variants": [variant]}
        selection = collect("gemm", arch, pool=pool, axes=axes)
        demand_sound(selection)
        assert bool(selection.specs) == (variant != "preshuffle" or layout == "rcr"), (datatype, layout, variant)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("pool", ["full", "profiler"])
def test_a_large_pool_gives_only_legal_specs(pool: str, arch: str) -> None:
    for datatype, variant in product(("fp16", inputs(arch)[-1]), ("standard", "preshuffle")):
        axes = {"datatypes": [datatype], "layouts": ["rcr"], "variants": [variant]}
        selection = collect("gemm", arch, pool=pool, axes=axes, limit=800)
        demand_sound(selection)
        assert len(selection.specs) > 50, (datatype, variant)


def test_the_full_pool_has_every_pipeline_scheduler_and_store() -> None:
    every = collect("gemm", "gfx942", pool="full", axes={"datatypes": ["fp16"], "layouts": ["rcr"]}).specs
    specs = [one for one in every if one.schedule.pipeline != "tiled"]
    assert len(specs) < len(every)
    traits = {(one.schedule.pipeline, one.schedule.scheduler, one.schedule.store) for one in specs}
    wanted = {(one, "intrawave") for one in ("mem", "compv3", "compv4", "compv5")} | {("mem", "interwave")}
    assert traits == {(*one, store) for one in wanted for store in ("cshuffle", "direct")}
    assert {one.schedule.persistent for one in specs} == {True, False}
    assert 2000 < len(specs) < 8000


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", SETS)
def test_a_preselected_set_is_legal_and_what_it_says(name: str, arch: str) -> None:
    if arch == "gfx90a" and name.startswith(("int8", "fp8")):
        pytest.skip("gfx90a has no one-byte matrix code in these headers")
    selection = collect("gemm", arch, preselected=name)
    demand_sound(selection)
    assert not selection.rejected
    meant = POOLS.sets[name]
    assert isinstance(meant, PreselectedSet)
    assert meant.purpose
    assert {one.signature.layout for one in selection.specs} == {"rcr"}
    datatype = element_type(meant.datatype, all_archs()[arch])
    assert {one.signature.dtype_a for one in selection.specs} == {datatype}
    # With four waves a block, several small tiles grow into the same one.
    assert len(selection.specs) == SETS[name] or (arch == "gfx90a" and 0 < len(selection.specs) < SETS[name])


def test_the_sets_of_old_are_all_here() -> None:
    assert {name for name, one in POOLS.sets.items() if one.family == "cdna"} == set(SETS)


def test_mixed_precision_is() -> None:
    specs = collect("gemm", "gfx942", preselected="mixed_precision").specs
    assert {(one.signature.dtype_a, one.signature.dtype_c) for one in specs} == {("bf16", "fp32")}


@pytest.mark.parametrize("arch", ["gfx908", "gfx1100", "gfx1200", "gfx1201"])
@pytest.mark.parametrize("pool", ["tiny", "default", "tests", "full", "profiler"])
def test_every_pool_has_matrix_kernels_where_ck_tile_has_none(arch: str, pool: str) -> None:
    selection = collect("gemm", arch, pool=pool, axes={"datatypes": ["fp16"], "layouts": ["rcr"]}, limit=100)
    demand_sound(selection)
    expected = {"tiled", "loops"} if pool in ("tiny", "tests") else {"tiled"}
    assert {one.schedule.pipeline for one in selection.specs} == expected


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_rdna_reads_a_packed_b_where_it_multiplies_the_type_and_else_says_why(arch: str) -> None:
    axes = {"datatypes": ["fp16"], "layouts": ["rcr"], "variants": ["preshuffle"]}
    assert {spec.schedule.pipeline for spec in collect("gemm", arch, axes=axes).specs} == {"tiled"}
    wide = GEMM.problem_violations(GemmProblem(64, 64, 64, dtype_a="fp32", layout="rcr", preshuffled=True), arch)
    assert [one.rule for one in wide] == ["amd-packed"]
