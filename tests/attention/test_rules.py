"""Rules, pools, options and names: each rule has an example that breaks it, what is written is read back."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION, gapped, kind, problem
from tilewright.arch import all_archs, arch
from tilewright.backends.gpu import attention as kv_splits
from tilewright.backends.gpu.attention import Walk, splits
from tilewright.errors import TilewrightError
from tilewright.ops.attention import AttentionProblem, AttentionSignature, pools
from tilewright.ops.attention.legality import family_of
from tilewright.ops.attention.schedule import LoopsSchedule
from tilewright.ops.attention.spec import normalized
from tilewright.ops.attention.splits import independent_splits, splits_of
from tilewright.ops.attention_terms import HEADS, head_class
from tilewright.ops.base import KernelSpec, plain

BASE = AttentionProblem(2, 4, 5, 7, 16)
SIGNATURE = BASE.signature
ARCHS = ("generic", "x86_64_v3", "sm_90a", "sm_80", "gfx942", "gfx1100")

DENSE: dict[str, Any] = {"q_strides": (), "k_strides": (), "v_strides": (), "o_strides": ()}


def changed(**fields: Any) -> AttentionProblem:
    return replace(BASE, q_strides=(), k_strides=(), v_strides=(), o_strides=(), **fields)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"family": "sideways"}, "family-name"),
        ({"bias": "loud"}, "bias-name"),
        ({"pages": "folded"}, "pages-name"),
        ({"page_lookup": "guess"}, "page-lookup-name"),
        ({"rotary": "spiral"}, "rotary-name"),
        ({"kv_scales": "row"}, "scales-name"),
        ({"q_scale": "row"}, "scales-name"),
        ({"align": "middle", "window_right": 0}, "align-name"),
        ({"dtype_q": "fp31"}, "dtype-name"),
        ({"batch": -1}, "size-negative"),
        ({"seqlen_k": 1 << 33}, "size-huge"),
        ({"head_dim_v": -1}, "size-positive"),
        ({"heads_kv": 3}, "heads-divide"),
        ({"head_dim": 600}, "head-size"),
        ({"window_left": -5, "window_right": 0}, "window"),
        ({"num_splits": 200}, "splits"),
        ({"family": "split", "num_splits": 0}, "splits"),
        ({"pages": "strided", "page_lookup": "table", "page_size": 2000}, "page-size"),
        ({"pages": "vectorised", "page_lookup": "table", "page_size": 6}, "page-vector"),
        ({"pages": "vectorised", "page_lookup": "table", "page_size": 8, "head_dim": 18}, "page-vector"),
        ({"pages": "strided"}, "page-lookup"),
        ({"family": "append", "pages": "strided", "page_lookup": "indices"}, "page-lookup"),
        ({"mask_shape": (3, 1, 5, 7)}, "mask-shape"),
        ({"bias": "tensor", "bias_shape": (5, 7)}, "bias-shape"),
        ({"bias_shape": (1, 1, 5, 7)}, "bias-shape"),
        ({"dtype_q": "fp8_e4m3", "kv_scales": "block"}, "scale-block"),
        ({"kv_scales": "head"}, "scales-dtype"),
        ({"dtype_q": "int8"}, "dtype-input"),
        ({"dtype_kv": "fp16"}, "dtype-mix"),
        ({"dtype_out": "int8"}, "dtype-output"),
        ({"bias": "tensor", "dtype_aux": "bf16"}, "dtype-bias"),
        ({"family": "append", "dtype_q": "fp8_e4m3"}, "dtype-mix"),
        ({"family": "append", "rotary": "half", "rotary_dim": 7}, "rotary-size"),
        ({"dtype_q": "fp8_e4m3fnuz", "dtype_kv": "fp8_e4m3fnuz", "dtype_out": "bf16"}, "dtype-input"),
        ({"o_strides": (1, 1, 1)}, "stride-overlap"),
        ({"q_strides": (1, 1)}, "stride-rank"),
    ],
    ids=str,
)
def test_a_problem_that_no_kernel_computes_says_why(fields: dict[str, Any], rule: str) -> None:
    strides = {name: fields.get(name, ()) for name in ("q_strides", "k_strides", "v_strides", "o_strides")}
    made = replace(BASE, **{**fields, **strides})
    found = ATTENTION.problem_violations(made, "generic")
    assert rule in [one.rule for one in found], found
    assert all(one.remedy for one in found)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"family": "backwards"}, "family-name"),
        ({"mask": "holes"}, "mask-name"),
        ({"dtype_q": "fp31"}, "dtype-name"),
        ({"head_dim": 100}, "kernel-heads"),
        ({"rotary": "half"}, "unread"),
        ({"family": "combine"}, "unread"),
        ({"page_lookup": "table"}, "unread"),
        ({"dtype_kv": "fp16"}, "dtype-mix"),
    ],
    ids=str,
)
def test_a_spec_that_is_none_says_why(fields: dict[str, Any], rule: str) -> None:
    signature = replace(AttentionSignature("forward", "bf16", "bf16", "bf16"), **fields)
    found = ATTENTION.check(KernelSpec("attention", signature, LoopsSchedule(), "generic"))
    assert rule in [one.rule for one in found], found


def test_archs_and_schedules_of_others() -> None:
    assert [one.rule for one in ATTENTION.check(KernelSpec("attention", SIGNATURE, LoopsSchedule(), "z80"))] == [
        "arch-name"
    ]
    with pytest.raises(TilewrightError) as caught:
        ATTENTION.spec_from_dict(
            {**ATTENTION.fallback_spec(SIGNATURE, "generic").to_dict(), "schedule": {"pipeline": "x"}}
        )
    assert caught.value.rule == "pipeline-name"


@pytest.mark.parametrize("name", ARCHS)
@pytest.mark.parametrize("pool", ["default", "tests", "tiny", "full-tests"])
def test_pools_hold_legal_kernels_of_every_family(name: str, pool: str) -> None:
    for family in ("forward", "split", "combine", "append"):
        axes = {"families": (family,), "datatypes": ("bf16",), "features": ("plain", "lse")}
        found = [one for one in ATTENTION.proposals(pool, name, **axes) if not ATTENTION.check(one)]
        assert found, (family, pool)
        assert {one.signature.family for one in found} == {family}


@pytest.mark.parametrize("seed", range(30))
def test_a_problem_is_written_and_read_back(seed: int) -> None:
    draw = random.Random(seed)
    one = gapped(draw, problem(draw, kind(draw)))
    assert ATTENTION.problem_from_dict(plain(one)) == one
    words = ATTENTION.words(one)
    values: dict[str, Any] = {}
    options = {f"--{one.name.replace('_', '-')}": one for one in ATTENTION.options}
    rest = iter([part for word in words for part in (word.split("=", 1) if word.startswith("--window=") else [word])])
    for word in rest:
        option = options[word]
        values[option.name] = True if option.kind is bool else option.kind(next(rest))
    assert ATTENTION.problem(values) == one, words


@pytest.mark.parametrize("name", ["page_size", "page_count", "total_q", "total_k", "scale_block", "rotary_dim"])
def test_a_number_that_nothing_reads_makes_no_other_problem(name: str) -> None:
    """`--page-size 4` without pages would else be measured, remembered and pinned apart."""
    assert changed(**{name: 4}) == BASE
    every = {one.name: getattr(BASE, one.name) for one in fields(BASE)}
    assert ATTENTION.problem({**every, "page_lookup": "", "q_strides": "", "k_strides": "", "v_strides": "",
                              "o_strides": "", "bias_shape": "", "mask_shape": "", name: 4}) == BASE  # fmt: skip
    fit = {"page": "pages", "tota": "varlen", "scal": "kv_scales", "rota": "rotary"}[name[:4]]
    read = changed(
        family="append" if fit == "rotary" else "forward",
        **{fit: {"pages": "strided", "varlen": True, "kv_scales": "block", "rotary": "half"}[fit], name: 4},
    )
    assert getattr(read, name) == 4


def test_a_causal_window_lies_in_one_place() -> None:
    sizes = {"batch": 1, "heads_q": 1, "seqlen_q": 2, "seqlen_k": 3, "head_dim": 8}
    assert ATTENTION.problem({**sizes, "causal": "bottom_right", "align": "bottom_right"}).align == "bottom_right"
    assert ATTENTION.problem({**sizes, "causal": "true", "align": "bottom_right"}).align == "bottom_right"
    with pytest.raises(TilewrightError, match="align is 'top_left'"):
        ATTENTION.problem({**sizes, "causal": "bottom_right", "align": "top_left"})


@pytest.mark.parametrize("seed", range(20))
def test_a_signature_is_found_by_its_label_and_its_axes(seed: int) -> None:
    draw = random.Random(seed)
    signature = problem(draw, kind(draw)).signature
    assert normalized(signature) == signature
    label = f"{signature.label()}_loops_generic_01234567"
    assert signature in list(ATTENTION.signatures_of(label))
    axes = ATTENTION.axes_of(signature)
    assert {one.signature for one in ATTENTION.proposals("full", "generic", **axes)} == {signature}
    spec = ATTENTION.fallback_spec(signature, "generic")
    assert ATTENTION.spec_from_dict(spec.to_dict()) == spec


def test_what_an_axis_may_be_called() -> None:
    found = {
        one.signature for one in ATTENTION.proposals("default", "generic", features=("causal+lse",), heads=("80",))
    }
    assert [(one.mask, one.return_lse, one.head_dim) for one in found] == [("window", True, 96)]
    for axes, rule in (({"features": ("loud",)}, "feature-name"), ({"families": ("sideways",)}, "family-name"),
                       ({"heads": ("1000",)}, "kernel-heads"), ({"datatypes": ("fp31",)}, "dtype-name")):  # fmt: skip
        with pytest.raises(TilewrightError) as caught:
            list(ATTENTION.proposals("default", "generic", **axes))
        assert caught.value.rule == rule
    assert pools.FEATURES.normal("Causal+LSE") == "window+lse"


def test_heads_are_rounded_up_to_those_kernels_have() -> None:
    assert [head_class(one) for one in (1, 32, 33, 72, 80, 128, 129, 256, 257, 576)] == [
        32, 32, 64, 96, 96, 128, 160, 256, 512, 576,
    ]  # fmt: skip
    assert head_class(577) == 577
    assert list(HEADS) == sorted(HEADS)


def test_splits_by_the_stated_rule() -> None:
    """One part where there are blocks enough; else what takes the least time by its account; none too small."""

    def of(blocks: int, keys: int) -> int:
        return splits(Walk(blocks, keys, 512, blocks * 4 * 512, 264), "sm_90a")

    assert of(264, 1 << 17) == 1
    assert of(1, 300) == 1, "a part has at least four tiles"
    for blocks in (1, 3, 8, 64, 130, 200):
        for keys in (512, 4096, 131072):
            count = of(blocks, keys)
            assert 1 <= count <= 128
            assert count == 1 or keys // count >= 256
    # As measured on an H200: the fastest of 1 to 64 parts.
    assert [of(8, 4096), of(32, 8192), of(8, 65536), of(64, 2048), of(2, 1788)] == [16, 8, 32, 4, 7]
    long = AttentionProblem(1, 32, 1, 65536, 128, 8, dtype_q="bf16")
    assert splits_of(long, arch("x86_64_v3")) == 1
    assert splits_of(replace(long, num_splits=5), arch("x86_64_v3")) == 5
    assert splits_of(long, arch("sm_90a")) > 1
    assert [one.family for one in ATTENTION.stages(long, "sm_90a")] == ["split", "combine"]
    assert [one.family for one in ATTENTION.stages(long, "generic")] == ["forward"]


def test_lengths_that_the_device_tells_are_not_divided_beforehand() -> None:
    """Where a kernel of shares takes the problem; on other archs, of types and pages that it does not, parts."""
    known = AttentionProblem(4, 32, 1, 65536, 128, 8, dtype_q="bf16")
    told = replace(known, seqlens_k=True)
    odd = replace(told, head_dim=60, head_dim_v=60, **DENSE)
    narrow = AttentionProblem(4, 32, 1, 65536, 128, 8, dtype_q="bf16", dtype_kv="fp8_e4m3", seqlens_k=True)
    one, rows = replace(told, batch=1, **DENSE), replace(told, seqlen_q=24, **DENSE)
    many = replace(
        told, batch=2, heads_q=8, heads_kv=1, seqlen_q=8, **DENSE
    )  # pieces, which one block would be long at
    assert splits_of(told, arch("sm_90a")) == 1
    assert splits_of(replace(told, num_splits=7), arch("sm_90a")) == 7
    for other in (known, odd, narrow, one, rows, many):
        assert splits_of(other, arch("sm_90a")) == independent_splits(other, arch("sm_90a")) > 1, other
    for target in ("sm_80", "gfx942"):
        assert splits_of(told, arch(target)) == independent_splits(told, arch(target)) > 1


@pytest.mark.parametrize(("target", "taken"), [("sm_80", True), ("gfx942", False)])
def test_any_family_may_deal_keys_itself(target: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule asks the families of kernels that take the problem, and knows none of them by name."""
    told = AttentionProblem(4, 32, 1, 65536, 128, 8, dtype_q="bf16", seqlens_k=True)
    first = pools.POOLS.candidates(told.signature, target)[0]
    assert taken == (not ATTENTION.supports(first, told))
    walked = independent_splits(told, arch(target))
    for trips, count in ((0.0, 1 if taken else walked), (1e6, walked)):
        kv_splits._met.cache_clear()
        monkeypatch.setattr(type(family_of(first)), "meeting_trips", lambda *_, trips=trips: trips)
        assert splits_of(told, arch(target)) == count
    kv_splits._met.cache_clear()


def test_a_latent_counts_once_where_it_is_read_once() -> None:
    """Half the bytes of keys and values apart, so that a second stage is not worth its time."""
    latents = AttentionProblem(96, 16, 1, 4096, 576, 1, 512, dtype_q="bf16")
    assert splits_of(latents, arch("sm_90a")) == 1
    apart = Walk(96, 4096, 2 * (576 + 512), 96 * 16 * 4 * 512, 132)
    narrow = replace(latents, dtype_kv="fp8_e4m3")  # another pipeline has these
    assert splits_of(narrow, arch("sm_90a")) == splits(apart._replace(key_bytes=576 + 512), "sm_90a")
    assert splits(apart, "sm_90a") == 4


def test_every_arch_has_a_floor_for_every_kind() -> None:
    for name in all_archs():
        for seed in range(12):
            draw = random.Random(seed)
            one = problem(draw, kind(draw))
            if not ATTENTION.problem_violations(one, name):
                floor = ATTENTION.fallback_spec(one.signature, name)
                assert ATTENTION.check(floor) == []
                assert ATTENTION.supports(floor, one) == []


def test_what_is_quickly_told_legal_breaks_no_rule() -> None:
    """Of problems with fields turned at random, most of them to numbers that some rule is about."""
    from tilewright.ops.attention import problem_rules

    r, quick = random.Random(5), 0
    numbers = (-2, -1, 0, 1, 2, 3, 4, 7, 128, 200, 600, 1 << 13, 1 << 25, 1 << 31, 1 << 35, 1 << 61)
    words: dict[str, tuple[Any, ...]] = {
        "family": ("split", "append", "combine"), "bias": ("tensor", "alibi", "loud"), "pages": ("strided",),
        "q_scale": ("tensor", "row"), "kv_scales": ("head",), "dtype_q": ("bf16", "int8"), "align": ("middle",),
        "varlen": (True,), "bias_shape": ((1, 1, 5, 7),), "mask_shape": ((3, 1, 5, 7), (1, 1, 1, 1)),
        "rotary_q": (True,), "softcap": (True,),
        **dict.fromkeys(("q_strides", "k_strides", "v_strides", "o_strides"), ((1, 1), (1, 1, 1), (1 << 40, 64, 16),
                                                                          (-320, -64, 16), (320, 64, 16))),
    }  # fmt: skip
    sizes = [one.name for one in fields(AttentionProblem) if isinstance(getattr(BASE, one.name), int)]
    for _ in range(4000):
        given: dict[str, Any] = {}
        for name in r.sample([*sizes, *words], r.randrange(4)):
            flag = isinstance(getattr(BASE, name, 0), bool)
            given[name] = r.choice(words[name]) if name in words else True if flag else r.choice(numbers)
        made = replace(BASE, **{**DENSE, **given})
        quick += problem_rules._plainly_legal(made)
        assert problem_rules.problem_violations(made) == problem_rules.every_violation(made), given
    assert 500 < quick < 3500
