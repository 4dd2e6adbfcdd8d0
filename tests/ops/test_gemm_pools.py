"""Pools and preselected sets: only legal specs come out, all distinct, for every target and datatype."""

from __future__ import annotations

from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.arch import all_archs
from tilewright.codegen import Rejection, SpecSet, collect, split_legal
from tilewright.dtypes import DTYPES
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops import KernelSpec, op
from tilewright.ops.encodings import element_type
from tilewright.ops.fused import EPILOGUES
from tilewright.ops.gemm import preselected
from tilewright.ops.gemm.legality import SPACES
from tilewright.ops.gemm.pools import POOLS
from tilewright.ops.gemm.preselected import PreselectedSet
from tilewright.ops.gemm.spec import LAYOUTS, VARIANTS

GEMM = op("gemm")
ARCHS = sorted(name for name, one in all_archs().items() if one.family in SPACES)
# The CPU serves every datatype and layout; what a GPU serves is in the tests of its family.
CPUS = [name for name in ARCHS if all_archs()[name].family == "cpu"]
SETS = [
    (name, arch)
    for name, one in POOLS.sets.items()
    for arch in ARCHS
    if all_archs()[arch].family == one.family
    and not any(
        violation.rule in ("dtype-mix", "amd-dtype-mix", "amd-no-matrix-kernel")
        for spec in GEMM.preselected(name, arch)
        for violation in GEMM.check(spec)
    )
]
INPUTS = ("fp32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3:bf16")
SMALL_POOLS = ("tiny", "tests", "default")


def demand_sound(selection: SpecSet) -> None:
    """Legal, distinct, and every rejection with a rule and a reason."""
    for spec in selection.specs:
        assert GEMM.check(spec) == [], spec.name
    assert len({spec.name for spec in selection.specs}) == len(selection.specs)
    assert len({spec.digest for spec in selection.specs}) == len(selection.specs)
    for rejection in selection.rejected:
        assert rejection.violations
        assert rejection.violations == tuple(GEMM.check(rejection.spec))
        for violation in rejection.violations:
            assert violation.rule
            assert violation.message


@pytest.mark.parametrize("arch", CPUS)
@pytest.mark.parametrize("pool", SMALL_POOLS)
def test_a_small_pool_serves_every_datatype_layout_and_variant(pool: str, arch: str) -> None:
    for datatype, layout, variant in product(INPUTS, LAYOUTS, VARIANTS):
        selection = collect(
            "gemm", arch, pool=pool, axes={"datatypes": [datatype], "layouts": [layout], "variants": [variant]}
        )
        demand_sound(selection)
        assert selection.specs, (datatype, layout, variant)


@pytest.mark.parametrize("arch", CPUS)
@pytest.mark.parametrize("datatype", INPUTS)
@pytest.mark.parametrize("pool", ["full", "profiler"])
def test_a_large_pool_gives_only_legal_specs(pool: str, arch: str, datatype: str) -> None:
    selection = collect("gemm", arch, pool=pool, axes={"datatypes": [datatype]}, limit=1500)
    demand_sound(selection)
    assert len(selection.specs) > 10


@given(
    pool=st.sampled_from(GEMM.pool_names),
    arch=st.sampled_from(ARCHS),
    axes=st.fixed_dictionaries(
        {},
        optional={
            "datatypes": st.lists(st.sampled_from(sorted(DTYPES)), min_size=1, max_size=2),
            "layouts": st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=2),
            "variants": st.lists(st.sampled_from(VARIANTS), min_size=1, max_size=3),
            "epilogues": st.lists(st.sampled_from(EPILOGUES), min_size=1, max_size=2),
            "outputs": st.lists(st.sampled_from(sorted(DTYPES)), min_size=1, max_size=2),
            "num_d": st.lists(st.integers(0, 4), min_size=1, max_size=2),
        },
    ),
)
def test_no_request_gets_an_illegal_spec_out_of_a_pool(pool: str, arch: str, axes: dict[str, Any]) -> None:
    # Only the first proposals: with every rule broken at once a large pool would take minutes.
    found = list(split_legal(islice(GEMM.proposals(pool, arch, **axes), 200)))
    demand_sound(
        SpecSet(
            tuple(dict.fromkeys(one for one in found if isinstance(one, KernelSpec))),
            tuple(one for one in found if isinstance(one, Rejection)),
        )
    )


@pytest.mark.proof
def test_all_specs_of_all_small_pools_and_sets_have_distinct_names() -> None:
    everything = {
        spec
        for pool, arch in product(SMALL_POOLS, ARCHS)
        for spec in GEMM.proposals(
            pool,
            arch,
            datatypes=INPUTS,
            layouts=LAYOUTS,
            variants=("multi_d",),
            epilogues=[one for one in EPILOGUES if one != "PassThrough"],
        )
    }
    everything |= {spec for name, arch in SETS for spec in GEMM.preselected(name, arch)}
    assert len(everything) > 1000
    assert len({spec.name for spec in everything}) == len(everything)
    assert len({spec.digest for spec in everything}) == len(everything)


def test_pools_are_in_the_same_order_every_time() -> None:
    one, other = (collect("gemm", "x86_64_v3", pool="full", limit=300) for _ in range(2))
    assert one.specs == other.specs


@pytest.mark.parametrize("arch", CPUS)
def test_candidates_are_legal_and_the_floor_is_there(arch: str) -> None:
    for datatype, layout in product(INPUTS, LAYOUTS):
        signature = next(GEMM.proposals("tiny", arch, datatypes=[datatype], layouts=[layout])).signature
        candidates = GEMM.candidates(signature, arch)
        assert candidates
        assert all(not GEMM.check(one) and one.signature == signature for one in candidates)
        assert GEMM.check(GEMM.fallback_spec(signature, arch)) == []


@pytest.mark.parametrize(("name", "arch"), SETS)
def test_a_preselected_set_is_small_legal_and_what_it_says(name: str, arch: str) -> None:
    selection = collect("gemm", arch, preselected=name)
    demand_sound(selection)
    assert not selection.rejected
    assert 1 <= len(selection.specs) <= 64
    meant = POOLS.sets[name]
    assert isinstance(meant, PreselectedSet)
    assert meant.purpose
    for spec in selection.specs:
        assert spec.signature.dtype_a == element_type(meant.datatype, all_archs()[arch])
        assert spec.signature.layout == meant.layout
        assert all_archs()[spec.arch].family == meant.family


def test_a_set_of_another_family_is_refused_with_those_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = preselected.PreselectedSet(
        "foreign", "abacus", "fp16", "rcr", "a set of another family", (preselected.Part(),), lambda *_: ()
    )
    monkeypatch.setitem(POOLS.sets, foreign.name, foreign)
    with pytest.raises(RequestError) as caught:
        GEMM.preselected(foreign.name, "generic")
    assert caught.value.rule == "preselected-family"
    assert "fp32_essential" in caught.value.remedy
    assert foreign.name not in caught.value.remedy


@pytest.mark.parametrize("name", ["fp16_rcr_essential", "fp16_essential"])
def test_a_set_for_an_arch_without_sets_says_so(name: str) -> None:
    with pytest.raises(RequestError, match="gfx1201 is of family rdna") as caught:
        GEMM.preselected(name, "gfx1201")
    assert caught.value.remedy == "sets for rdna: none yet"


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        ({"pool": "defalt"}, "pool-name"),
        ({"preselected": "fp32_esential"}, "preselected-name"),
        ({"preselected": "fp32_essential", "pool": "tiny"}, "preselected-pool"),
        ({"preselected": "fp32_essential", "axes": {"layouts": ["rcr"]}}, "preselected-axes"),
        ({"axes": {"colours": ["red"]}}, "axis-name"),
        ({"axes": {"datatypes": ["fp23"]}}, "dtype-name"),
        ({"axes": {"datatypes": ["fp32:"]}}, "dtype-name"),
        ({"axes": {"outputs": ["fp23"]}}, "dtype-name"),
        ({"axes": {"layouts": ["rrc"]}}, "layout-name"),
        ({"axes": {"variants": ["multid"]}}, "variant-name"),
        ({"axes": {"epilogues": ["rellu"]}}, "epilogue-name"),
    ],
)
def test_a_mistyped_request_is_one_error_with_a_remedy(request_: dict[str, Any], rule: str) -> None:
    with pytest.raises(RequestError) as caught:
        collect("gemm", "generic", **request_)
    assert caught.value.rule == rule
    assert caught.value.remedy


def test_fused_work_without_a_variant_means_multi_d() -> None:
    selection = collect("gemm", "generic", pool="tiny", axes={"epilogues": ["relu"], "num_d": [1]})
    assert {spec.signature.variant for spec in selection.specs} == {"multi_d"}
    assert {spec.signature.num_d for spec in selection.specs} == {1}


def test_rejections_are_counted_by_rule_with_an_example() -> None:
    selection = collect("gemm", "generic", pool="tiny", axes={"outputs": ["int8", "fp32"]})
    assert selection.specs
    count, example = selection.rejections_by_rule()["dtype-output"]
    assert count == len(selection.rejected) > 0
    assert "int8" in example.message


def test_an_unknown_arch_is_an_error_at_once() -> None:
    with pytest.raises(UnknownNameError, match="gfx942x"):
        collect("gemm", "gfx942x")


def test_the_limit_cuts_and_the_filter_counts() -> None:
    everything = collect("gemm", "generic", pool="full").specs
    assert collect("gemm", "generic", pool="full", limit=7).specs == everything[:7]
    middle = sorted(spec.schedule.tile[0] for spec in everything)[len(everything) // 2]
    selection = collect("gemm", "generic", pool="full", expression=f"c.tile_m >= {middle}")
    assert selection.specs == tuple(spec for spec in everything if spec.schedule.tile[0] >= middle)
    assert selection.filtered > 0
