"""A spec is identity: its JSON comes back, its digest and name tell it from every other."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.cpu.gemm.names import CpuPackedSchedule
from tests.backends.cuda.gemm.names import TmaWsSchedule
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.dtypes import DTYPES
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops import KernelSpec, all_ops, op
from tilewright.ops.fused import EPILOGUES, normal_epilogue
from tilewright.ops.gemm import GemmSignature
from tilewright.ops.gemm.legality import SPACES
from tilewright.ops.gemm.spec import LAYOUTS, VARIANTS

GEMM = op("gemm")

dtypes = st.sampled_from(sorted(DTYPES))
signatures = st.builds(
    GemmSignature,
    variant=st.sampled_from(VARIANTS),
    dtype_a=dtypes,
    dtype_b=dtypes,
    dtype_acc=dtypes,
    dtype_c=dtypes,
    dtype_d=dtypes,
    layout=st.sampled_from(LAYOUTS),
    epilogue=st.sampled_from(EPILOGUES),
    num_d=st.integers(0, 2),
)
ARCH_OF = {"cpu": "x86_64_v3", "cdna": "gfx942", "rdna": "gfx1100", "nvidia": "sm_90a"}
FAMILIES = sorted({(ARCH_OF[family], one) for family in SPACES for one in SPACES.schedules(family)}, key=str)


def schedules(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Every value a family's fields may have, drawn from their annotations."""
    hints, given = get_type_hints(kind), {}
    for one in dataclasses.fields(kind):
        if one.init:
            words = kind.choices.get(one.name)
            given[one.name] = st.sampled_from(words) if words else st.from_type(hints[one.name])
    return st.builds(kind, **given)


specs = st.sampled_from(FAMILIES).flatmap(
    lambda pair: st.builds(
        KernelSpec, op=st.just("gemm"), signature=signatures, schedule=schedules(pair[1]), arch=st.just(pair[0])
    )
)

ONE = KernelSpec(
    "gemm",
    GemmSignature("standard", "fp32", "fp32", "fp32", "fp32", "fp32", "rrr"),
    CpuPackedSchedule("packed", (96, 256, 128), (6, 16, 1)),
    "x86_64_v3",
)


@given(specs)
def test_a_spec_comes_back_from_its_json(spec: KernelSpec) -> None:
    back = GEMM.spec_from_dict(json.loads(spec.to_json()))
    assert back == spec
    assert hash(back) == hash(spec)
    assert (back.digest, back.name, back.to_json()) == (spec.digest, spec.name, spec.to_json())


@given(specs, specs)
def test_two_specs_share_name_and_digest_only_when_equal(one: KernelSpec, other: KernelSpec) -> None:
    assert (one == other) == (one.digest == other.digest) == (one.name == other.name)


def other(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [
            (*value[:i], not one if isinstance(one, bool) else one + 1, *value[i + 1 :]) for i, one in enumerate(value)
        ]
    return [not value if isinstance(value, bool) else value + "x" if isinstance(value, str) else value + 1]


@pytest.mark.parametrize("arch", sorted(ARCH_OF.values()))
@pytest.mark.parametrize("part", ["signature", "schedule"])
def test_no_field_is_left_out_of_the_identity(part: str, arch: str) -> None:
    seen = set()
    for spec in GEMM.proposals("tests", arch, datatypes=["bf16"], layouts=["rcr"]):
        owner = getattr(spec, part)
        if type(owner) in seen:
            continue
        seen.add(type(owner))
        for field in dataclasses.fields(owner):
            for change in other(getattr(owner, field.name)) if field.init else ():
                changed = dataclasses.replace(spec, **{part: dataclasses.replace(owner, **{field.name: change})})
                assert changed.digest != spec.digest, field.name
                assert changed.name != spec.name, field.name
    assert seen


def test_a_schedule_of_one_family_has_no_field_of_another() -> None:
    with pytest.raises(TypeError):
        TmaWsSchedule((128, 128, 64), stages=4, unroll=2)  # type: ignore[call-arg]
    text = json.loads(dataclasses.replace(ONE, schedule=TmaWsSchedule((128, 128, 64), 4), arch="sm_90a").to_json())
    assert text["schedule"] == {
        "pipeline": "tma_ws", "tile": [128, 128, 64], "stages": 4, "cluster": [1, 1], "grouping": "cooperative",
        "turned": False, "dealing": "tiles", "store": "direct",
    }  # fmt: skip
    text["schedule"]["pipeline"] = "multistage"
    with pytest.raises(RequestError) as caught:
        GEMM.spec_from_dict(text)
    assert caught.value.rule == "spec-field"
    text["schedule"]["pipeline"] = "packed"
    with pytest.raises(UnknownNameError, match="'packed' is not a gemm pipeline of sm_90a"):
        GEMM.spec_from_dict(text)


def test_a_configuration_without_a_pipeline_is_told_which_there_are() -> None:
    with pytest.raises(UnknownNameError, match="no pipeline is named") as caught:
        list(GEMM.configured({"swap_ab": [True]}, "sm_90a"))
    assert "tma_ws" in caught.value.remedy


def test_a_name_tells_what_a_kernel_is() -> None:
    schedule = TmaWsSchedule((16, 64, 64), 16, grouping="pingpong", swap_ab=True, tile_scheduler="split_k")
    name = dataclasses.replace(ONE, schedule=schedule, arch="sm_90a").name
    assert "tma_ws_16x64x64_pingpong_swap_ab_split_k_stages16" in name
    assert "split_k4" in dataclasses.replace(ONE, schedule=dataclasses.replace(ONE.schedule, split_k=4)).name


def test_a_name_says_pad_only_where_there_is_edge_code() -> None:
    shapes = ((64, 64, 32), (32, 32, 16), (2, 2, 1))
    for pad, said in (
        ((False, False, False), "_nopad"),
        ((True, True, False), "_padmn"),
        ((False, False, True), "_padk"),
        ((True, True, True), "_padmnk"),
    ):
        amd = CkTileSchedule("mem", *shapes, pad=pad)
        assert amd.label() == f"mem_64x64x32_2x2x1_32x32x16_intrawave_cshuffle{said}"
        cpu = CpuPackedSchedule("packed", (96, 256, 256), (6, 16, 1), pad=pad).label()
        assert cpu == "packed_96x256x256_6x16x1" + ("" if all(pad) else said)


def test_a_name_says_scheduler_and_store() -> None:
    shapes = ((64, 64, 32), (32, 32, 16), (2, 2, 1))
    direct = CkTileSchedule("mem", *shapes, scheduler="interwave", store="direct")
    assert direct.label() == "mem_64x64x32_2x2x1_32x32x16_interwave_direct_padmnk"
    narrow = CkTileSchedule("preshuffle", *shapes, scheduler="default", store_width=2, persistent=True, split_k=3)
    assert narrow.label() == "preshuffle_64x64x32_2x2x1_32x32x16_cshuffle2_split_k3_persistent_padmnk"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["x86_64_v3", "gfx942", "sm_80", "sm_90a"])
def test_no_two_kernels_of_a_pool_have_names_that_differ_by_digest_only(arch: str) -> None:
    asked = [(pool, "standard") for pool in GEMM.pool_names] + [("full", "preshuffle"), ("tests", "multi_d")]
    for pool, variant in asked:
        found = set(GEMM.proposals(pool, arch, datatypes=("fp16",), layouts=("rcr",), variants=(variant,)))
        told = {(one.signature.label(), one.schedule.label()) for one in found}
        assert len(told) == len(found), (pool, variant)


def test_the_arch_is_part_of_the_identity() -> None:
    assert dataclasses.replace(ONE, arch="generic").digest != ONE.digest


def test_a_digest_does_not_change_by_accident() -> None:
    """Every store and every record of measurements is keyed by it: change SPEC_SCHEMA when this must change."""
    assert ONE.digest == "72b3da25e3a168f6348dbd6c08e43e131eed471642767aacc46eed708d1c6b01"


def test_a_name_is_a_usable_file_name() -> None:
    assert ONE.name.replace("_", "").isalnum()
    assert len(ONE.name) < 200


def changed(path: tuple[str, ...], value: object) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(ONE.to_json())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("schema",), 99, "spec-schema"),
        (("schema",), None, "spec-schema"),
        (("op",), "conv", "spec-op"),
        (("arch",), 5, "spec-op"),
        (("arch",), None, "spec-field"),
        (("colour",), "red", "spec-field"),
        (("signature",), [], "spec-field"),
        (("signature", "layout"), None, "spec-field"),
        (("signature", "num_d"), "1", "spec-field"),
        (("schedule", "tyle"), [1, 1, 1], "spec-field"),
        (("schedule", "tile"), [1, 1], "spec-field"),
        (("schedule", "tile"), [1, 1, 1.5], "spec-field"),
        (("schedule", "unroll"), True, "spec-field"),
        (("schedule", "pad"), [1, 1, 1], "spec-field"),
    ],
)
def test_a_damaged_spec_is_refused_by_field(path: tuple[str, ...], value: object, rule: str) -> None:
    with pytest.raises(RequestError) as caught:
        GEMM.spec_from_dict(changed(path, value))
    assert caught.value.rule == rule
    assert caught.value.remedy


def test_signature_and_schedule_of_an_op_share_no_field_name() -> None:
    """Filters and tables offer both under one flat set of names."""
    for one in all_ops().values():
        spec = next(iter(one.proposals(one.pool_names[0], "generic")))
        both = [field.name for part in (spec.signature, spec.schedule) for field in dataclasses.fields(part)]
        assert len(both) == len(set(both))


def test_epilogues_are_found_whatever_their_case() -> None:
    assert normal_epilogue("passthrough") == "PassThrough"
    assert normal_epilogue("fast_gelu") == "FastGelu"
    assert normal_epilogue("add") == "MultiDAdd"
    with pytest.raises(UnknownNameError, match="rellu"):
        normal_epilogue("rellu")


def test_an_unknown_op_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        op("gem")
    assert "did you mean 'gemm'" in caught.value.remedy
