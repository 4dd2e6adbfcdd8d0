"""Every rule of a spec and of a problem speaks, with what would work; names are read back; problems keep their form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.attention_backward.drawing import BACKWARD
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, normalized
from tilewright.ops.base import KernelSpec, plain

ONE = AttentionBackwardProblem(2, 4, 17, 33, 64, 2)


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"family": "sideways"}, "family-name"),
        ({"bias": "some"}, "bias-name"),
        ({"align": "middle", "window_right": 0}, "align-name"),
        ({"accumulate": "some"}, "accumulate-name"),
        ({"dtype": "fp33"}, "dtype-name"),
        ({"dtype": "fp8_e4m3"}, "dtype-input"),
        ({"batch": -1}, "size-negative"),
        ({"seqlen_q": 1 << 31}, "size-huge"),
        ({"heads_q": -4}, "size-positive"),
        ({"heads_kv": 3}, "heads-divide"),
        ({"head_dim": 600}, "head-size"),
        ({"window_left": -2}, "window"),
        ({"mask_shape": (2, 4, 17, 5)}, "mask-shape"),
        ({"bias_shape": (1, 1, 17, 33)}, "bias-shape"),
        ({"bias": "tensor", "bias_shape": (3, 1, 17, 33)}, "bias-shape"),
        ({"bias": "tensor", "dtype_aux": "bf16"}, "dtype-bias"),
        ({"dbias": True}, "dbias-bias"),
        ({"dalibi": True, "bias": "tensor"}, "dalibi-bias"),
        ({"q_strides": (1, 2)}, "stride-rank"),
        ({"dq_strides": (0, 256, 64)}, "stride-overlap"),
        ({"k_strides": (1 << 61, 128, 64)}, "size-huge"),
        ({"family": "convert"}, "accumulate"),
    ],
)
def test_every_rule_of_a_problem_speaks(more: dict[str, Any], rule: str) -> None:
    found = BACKWARD.problem_violations(replace(ONE, **more), "x86_64_v3")
    assert rule in {one.rule for one in found}, found
    assert all(one.remedy for one in found)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"mask_shape": (17, 33)}, "has 2 sizes instead of 4"),  # it does broadcast
        ({"heads_q": 2, "heads_kv": 3}, "use 3 query heads, or a divisor of 2 for keys"),
    ],
)
def test_what_rules_say_is_so(more: dict[str, Any], said: str) -> None:
    found = BACKWARD.problem_violations(replace(ONE, **more), "x86_64_v3")
    assert any(said in text for each in found for text in (each.message, each.remedy)), found


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"family": "sideways"}, "family-name"),
        ({"head_dim": 100}, "kernel-heads"),
        ({"dlse": True}, "unread"),
        ({"dtype": "int8"}, "dtype-input"),
        ({"accumulate": "dq"}, "cpu-accumulate"),
        ({"dbias": True}, "dbias-bias"),
        ({"family": "dot", "head_dim": 128}, "pipeline-family"),
    ],
)
def test_every_rule_of_a_signature_speaks(fields: dict[str, Any], rule: str) -> None:
    spec = BACKWARD.candidates(replace(ONE, family="grad").signature, "x86_64_v3")[0]
    found = BACKWARD.check(replace(spec, signature=replace(spec.signature, **fields)))
    assert rule in {one.rule for one in found}, found


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"tile": (63, 192)}, "cpu-vector"),
        ({"tile": (64, 190)}, "cpu-tile"),
        ({"warp_tile": (16, 9)}, "cpu-registers"),
        ({"vectors": 0}, "positive"),
    ],
)
def test_every_rule_of_tiles_speaks(fields: dict[str, Any], rule: str) -> None:
    spec = BACKWARD.candidates(replace(ONE, family="grad").signature, "x86_64_v3")[0]
    found = BACKWARD.check(replace(spec, schedule=replace(spec.schedule, **fields)))
    assert rule in {one.rule for one in found}, found


def test_a_kernel_serves_a_stage_of_its_signature_only() -> None:
    spec = BACKWARD.candidates(ONE.stage("grad").signature, "x86_64_v3")[0]
    assert [one.rule for one in BACKWARD.supports(spec, ONE)] == ["stage"]
    assert [one.rule for one in BACKWARD.supports(spec, ONE.stage("dot"))] == ["signature"]
    assert BACKWARD.supports(spec, ONE.stage("grad")) == []


def test_the_stages_of_a_problem_have_signatures_of_their_own() -> None:
    whole = replace(ONE, bias="tensor", dbias=True, dsink=True, dlse=True, softcap=True)
    dot, grad = BACKWARD.stages(whole, "x86_64_v3")
    assert (dot.signature.label(), grad.signature.label()) == (
        "dot_fp32_h64x64_dlse_dsink",
        "grad_fp32_h64x64_bias_fp32_softcap_dbias",
    )
    three = BACKWARD.stages(replace(whole, accumulate="all"), "x86_64_v3")
    assert [one.family for one in three] == ["dot", "grad", "convert"]
    assert three[1].dkv_heads == 4
    assert grad.dkv_heads == 2
    assert BACKWARD.stages(dot, "x86_64_v3") == (dot,)
    assert replace(whole, window_right=3).stage("dot") == dot


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_names_and_json_are_read_back(dtype: str) -> None:
    for arch in ("generic", "x86_64_v4_bf16"):
        for features in ("plain", "window+packed+softcap", "bias+dbias+masked", "alibi+dalibi+dropout"):
            for spec in BACKWARD.proposals(
                "full", arch, families=("dot", "grad"), datatypes=(dtype,), features=(features,)
            ):
                if BACKWARD.check(spec):
                    continue
                assert BACKWARD.spec_from_dict(spec.to_dict()) == spec
                assert spec.signature in set(BACKWARD.signatures_of(spec.name.removeprefix("attention_backward_")))
                assert spec in list(BACKWARD.proposals("full", arch, **BACKWARD.axes_of(spec.signature)))


def test_a_problem_is_the_same_after_words_and_json() -> None:
    more = replace(ONE, window_right=0, align="bottom_right", bias="tensor", bias_shape=(1, 4, 1, 33), dbias=True,
                   seqlens_q=True, deterministic=True, dq_strides=(4352, 64, 1088), dtype="bf16")  # fmt: skip
    for one in (ONE, more, more.stage("grad"), more.stage("dot"), replace(ONE, varlen=True, total_q=20, total_k=30)):
        assert BACKWARD.problem_from_dict(plain(one)) == one
        values: dict[str, Any] = {}
        words = list(BACKWARD.words(one))
        kinds = {f"--{each.name.replace('_', '-')}": each for each in BACKWARD.options}
        while words:
            flag, _, text = words.pop(0).partition("=")
            option = kinds[flag]
            values[option.name] = True if option.kind is bool else option.kind(text or words.pop(0))
        assert BACKWARD.problem(values) == one


def test_settled_signatures_are_fixed_points() -> None:
    switches = (True,) * 7
    busy = AttentionBackwardSignature("grad", "bf16", 64, 128, "generic", "tensor", "bf16", *switches, False, "dq")
    for family in ("dot", "grad", "convert"):
        once = normalized(replace(busy, family=family))
        assert normalized(once) == once
    assert normalized(replace(busy, family="dot")).label() == "dot_bf16_h128x128_packed_dlse_dsink"
    assert normalized(replace(busy, family="convert")).label() == "convert_bf16_h64x128_packed_accum_dq"


def test_gaps_between_rows_share_measurements() -> None:
    gapped = replace(ONE, k_strides=(33 * 160, 160, 80))
    assert BACKWARD.measured_as(gapped) == ONE
    heads_first = replace(ONE, k_strides=(2 * 33 * 64, 64, 33 * 64))
    assert BACKWARD.measured_as(heads_first) == heads_first
    assert isinstance(BACKWARD.fallback_spec(ONE.stage("grad").signature, "generic"), KernelSpec)
