"""A spec is identity: its JSON comes back, its digest and name tell it from every other."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.arch import all_archs
from tilewright.dtypes import DTYPES
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops import KernelSpec, all_ops, op
from tilewright.ops.fused import EPILOGUES, normal_epilogue
from tilewright.ops.gemm import GemmSchedule, GemmSignature
from tilewright.ops.gemm.spec import LAYOUTS, VARIANTS

GEMM = op("gemm")

dtypes = st.sampled_from(sorted(DTYPES))
shapes = st.tuples(*[st.integers(1, 1024)] * 3)
specs = st.builds(
    KernelSpec,
    op=st.just("gemm"),
    signature=st.builds(
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
    ),
    schedule=st.builds(
        GemmSchedule,
        pipeline=st.sampled_from(["packed", "direct", "gemv"]),
        tile=shapes,
        warp_tile=shapes,
        warp_grid=shapes,
        scheduler=st.sampled_from(["default", "intrawave"]),
        store=st.sampled_from(["direct", "cshuffle"]),
        pad=st.tuples(st.booleans(), st.booleans(), st.booleans()),
        persistent=st.booleans(),
        split_k=st.integers(1, 4),
        unroll=st.integers(1, 4),
        prefetch=st.integers(0, 4),
        vector=shapes,
    ),
    arch=st.sampled_from(sorted(all_archs())),
)

ONE = KernelSpec(
    "gemm",
    GemmSignature("standard", "fp32", "fp32", "fp32", "fp32", "fp32", "rrr"),
    GemmSchedule("packed", (96, 256, 128), (6, 16, 1)),
    "x86_64_v3",
)
OTHER_VALUES: dict[type, Any] = {str: "other", int: 77, bool: True}


@given(specs)
def test_a_spec_comes_back_from_its_json(spec: KernelSpec) -> None:
    back = GEMM.spec_from_dict(json.loads(spec.to_json()))
    assert back == spec
    assert hash(back) == hash(spec)
    assert (back.digest, back.name, back.to_json()) == (spec.digest, spec.name, spec.to_json())


@given(specs, specs)
def test_two_specs_share_name_and_digest_only_when_equal(one: KernelSpec, other: KernelSpec) -> None:
    assert (one == other) == (one.digest == other.digest) == (one.name == other.name)


@pytest.mark.parametrize("part", ["signature", "schedule"])
def test_no_field_is_left_out_of_the_identity(part: str) -> None:
    owner = getattr(ONE, part)
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if isinstance(value, tuple):
            changes = [
                (*value[:i], not one if isinstance(one, bool) else one + 1, *value[i + 1 :])
                for i, one in enumerate(value)
            ]
        else:
            changes = [OTHER_VALUES[type(value)]]
        for change in changes:
            changed = dataclasses.replace(ONE, **{part: dataclasses.replace(owner, **{field.name: change})})
            assert changed.digest != ONE.digest, field.name
            assert changed.name != ONE.name, field.name


def test_the_arch_is_part_of_the_identity() -> None:
    assert dataclasses.replace(ONE, arch="generic").digest != ONE.digest


def test_a_digest_does_not_change_by_accident() -> None:
    """Every store and every record of measurements is keyed by it: change SPEC_SCHEMA when this must change."""
    assert ONE.digest == "7b64e3e3217531848d4defcf5f68f4407c7422789351ae152c393ae2e62f8d62"


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
