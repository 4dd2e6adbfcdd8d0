"""Convolution's part of the tile engine: sets are legal, the holdout stays apart, features are numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conv.conftest import CONV
from tilewright.arch import arch as arch_by_name
from tilewright.cli._problems import read_problems
from tilewright.ops.conv.features import kernel_terms
from tilewright.ops.conv.networks import NETWORKS
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.engine import engine
from tilewright.ops.features import Frame, kernel_columns, vocabulary
from tilewright.tune import instances, problem_sets

PART = engine(CONV)
TRAINING = [key for key, one in PART.problem_sets.items() if not one.holdout]
DIRECTIONS = [f"{one}_{rank}d" for one in ("forward", "bwd_data", "bwd_weight") for rank in (2, 3)]


@lru_cache(maxsize=64)
def of(key: str) -> tuple[ConvProblem, ...]:
    return tuple(problem_sets.problems(CONV, key, "cpu"))


def test_the_sets_that_are_promised() -> None:
    keys = set(PART.problem_sets)
    assert {*DIRECTIONS, *(f"{one}_validation" for one in DIRECTIONS), "holdout", *NETWORKS} == keys
    for key in DIRECTIONS:
        variant = {"forward": "forward", "bwd_data": "backward_data", "bwd_weight": "backward_weight"}[key[:-3]]
        found = of(key)
        assert {one.variant for one in found} == {variant}
        assert {len(one.size) for one in found} == {int(key[-2])}
        assert len(found) >= (500 if key.endswith("2d") else 150)
        assert 10 <= len(of(f"{key}_validation")) <= 16
        assert max(one.flops for one in of(f"{key}_validation")) <= 4.1e9, "quick to measure"
    held = of("holdout")
    assert [sum(len(one.size) == rank for one in held) for rank in (2, 3)] == [250, 50]
    assert len(set(held)) == 300
    assert {one.variant for one in held} == {"forward"}


@pytest.mark.parametrize("key", [*TRAINING, "holdout"])
def test_a_set_holds_legal_problems_each_once(key: str) -> None:
    found = of(key)
    assert len(found) == len(set(found)) == len(PART.problem_sets[key])
    assert all(not CONV.problem_violations(one, "x86_64_v3") for one in found)


@pytest.mark.proof
def test_no_training_set_holds_a_held_out_problem_or_its_neighbour() -> None:
    """Written out: the rule must not be judged by itself."""
    held: dict[Any, list[Any]] = {}
    for one in of("holdout"):
        held.setdefault((one.window, one.stride, one.dilation, one.groups), []).append(
            np.log([one.batch, one.channels, one.filters, *one.size])
        )
    near = math.log(1.08)
    for key in TRAINING:
        for one in of(key):
            for other in held.get((one.window, one.stride, one.dilation, one.groups), ()):
                mine = np.log([one.batch, one.channels, one.filters, *one.size])
                assert np.abs(mine - other).max() > near, (key, one)
        assert not problem_sets.leaking(CONV, of(key))


def test_a_leak_is_seen_however_it_is_spelled() -> None:
    """A window of one with a dilation, a result of one with a stride, a dimension more of one element."""
    pointwise = [one for one in PART.problem_sets["holdout"].values if set(one["window"].split("x")) == {"1"}]
    spelled = [{**one, "dilation": one["dilation"].replace("1", "2").replace("3", "2")} for one in pointwise]
    whole = {**pointwise[0], "window": pointwise[0]["size"], "dilation": "1x1", "padding": "0x0"}
    flat = [one for one in PART.problem_sets["holdout"].values if one["size"].count("x") == 1]
    deeper = [
        {**one, **{name: f"1x{one[name]}" for name in ("size", "window", "stride", "dilation")},
         "padding": f"0x{one['padding']}"}
        for one in flat
    ]  # fmt: skip
    assert len(spelled) > 20
    assert len(deeper) == 250
    found = [CONV.problem(one) for one in [*spelled, *deeper]]
    assert problem_sets.leaking(CONV, found) == found
    first, second = (CONV.problem({**whole, "stride": stride}) for stride in ("1x1", "3x2"))
    assert PART.near(first, second)
    assert PART.near(second, first)
    wider = CONV.problem({**pointwise[0], "window": "3x3", "padding": "1x1", "dilation": "2x2", "stride": "1x1"})
    assert not PART.near(wider, CONV.problem({**pointwise[0], "window": "3x3", "padding": "1x1", "stride": "1x1"}))


def test_a_leak_is_seen_in_any_direction_and_type() -> None:
    held = PART.problem_sets["holdout"].values[3]
    same = CONV.problem({**held, "variant": "backward_weight", "datatype": "bf16"})
    larger = CONV.problem({**held, "channels": held["channels"] * 20})
    assert problem_sets.leaking(CONV, [same, larger]) == [same]


def test_networks_are_what_their_papers_say() -> None:
    """A few layers of each, by name."""
    resnet = {(one.channels, one.filters, one.size[0], one.window[0], one.stride[0]) for one in NETWORKS["resnet50"]}
    assert {(3, 64, 224, 7, 2), (64, 64, 56, 3, 1), (128, 128, 56, 3, 2), (1024, 2048, 14, 1, 2)} <= resnet
    assert {(2048, 512, 7, 1, 1), (512, 512, 7, 3, 1)} <= resnet
    assert len(resnet) == 1 + 4 + 3 * 6  # the first stage has no strides
    assert {one.groups for one in NETWORKS["resnext50"]} == {1, 32}
    dwise = {(one.channels, one.size[0]) for one in NETWORKS["convnext"] if one.groups > 1}
    assert dwise == {(96, 56), (192, 28), (384, 14), (768, 7)}
    assert {one.window[0] for one in NETWORKS["efficientnet"] if one.groups > 1} == {3, 5}
    assert all(len(one.size) == 3 for name in ("unet_3d", "video") for one in NETWORKS[name])
    assert (2560, 1280, (8, 8)) in {(one.channels, one.filters, one.size) for one in NETWORKS["diffusion"]}


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from(["cpu", "cuda", "hip"]))
def test_random_problems_are_the_same_for_a_seed_and_legal(seed: int, count: int, device: str) -> None:
    found = problem_sets.values(CONV, f"random:{seed}:{count}", device)
    assert len(found) == count
    assert found == problem_sets.values(CONV, f"random:{seed}:{count}", device)
    assert found != problem_sets.values(CONV, f"random:{seed + 2}:{count}", device)
    for one in found:
        for variant in ("forward", "backward_data", "backward_weight"):
            assert not CONV.problem_violations(CONV.problem({**one, "variant": variant}), "x86_64_v3")


def test_every_family_is_drawn_and_named() -> None:
    for device in ("cpu", "cuda"):
        found = {PART.family(one) for one in problem_sets.problems(CONV, "random:3:120", device)}
        assert found == {"window", "pointwise", "strided", "grouped", "depthwise", "first", "dilated", "odd"}


def test_features_are_finite_numbers_that_follow_the_direction() -> None:
    assert len(set(PART.problem_feature_names)) == len(PART.problem_feature_names)
    rows = {}
    for key in DIRECTIONS:
        for one in of(f"{key}_validation"):
            row = Frame(PART, (), {}).of_problem(one)
            assert row.shape == (len(PART.problem_feature_names),)
            assert np.isfinite(row).all()
            rows[one] = dict(zip(PART.problem_feature_names, row, strict=True))
    layer = CONV.problem({"batch": 8, "channels": 32, "filters": 64, "size": "16x16", "window": "3", "padding": "1"})
    k = [
        PART.problem_features(replace(layer, variant=one))[4] for one in ("forward", "backward_data", "backward_weight")
    ]
    assert k == [math.log2(32 * 9), math.log2(64 * 9), math.log2(8 * 256)]


@pytest.mark.parametrize("arch", ["x86_64_v3", "sm_90a", "gfx942"])
def test_a_model_s_rows_are_whole_for_every_kernel(arch: str) -> None:
    problem = CONV.problem(
        {"batch": 8, "channels": 32, "filters": 64, "size": "16x16", "window": "3", "datatype": "bf16"}
    )
    specs = list(CONV.candidates(problem.signature, arch))
    assert specs
    words = vocabulary(specs, kernel_columns(CONV.schedules))
    frame = Frame(PART, kernel_columns(CONV.schedules), words)
    rows = frame.rows(specs, problem, 8)
    assert rows.shape == (len(specs), len(frame.columns))
    assert np.isfinite(rows).all()


@pytest.mark.parametrize(("word", "arch"), [("cpu", "x86_64_v3"), ("cuda", "sm_90a"), ("hip", "gfx942")])
def test_the_trait_configs_that_ship_mean_kernels(word: str, arch: str) -> None:
    read = instances.read(CONV, instances.load(CONV, word, arch))
    assert set(read.axes["variants"]) == {"forward", "backward_data", "backward_weight"}
    found = instances.expand(CONV, instances.load(CONV, word, arch), arch)
    assert {one.signature.variant for one in found.specs} == set(read.axes["variants"])


def test_a_file_may_have_numbers_where_a_command_line_has_texts(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    row = {"batch": 1, "channels": 4, "filters": 4, "size": "9x9", "window": 3, "stride": 2, "padding": "1:0x1"}
    file.write_text(json.dumps([row]))
    assert problem_sets.problems(CONV, str(file), "cpu") == [
        ConvProblem(1, 4, 4, (9, 9), (3, 3), stride=(2, 2), before=(1, 1), after=(0, 1))
    ]
    assert [one.problem.stride for one in read_problems(CONV, file, arch_by_name("x86_64_v3"))] == [(2, 2)]


def test_what_a_model_must_have_seen_of_a_signature() -> None:
    one = CONV.signature_of(of("forward_2d")[0])
    frame = Frame(PART, kernel_columns(CONV.schedules), {})
    words = set(frame.signature_words(one))
    for name, value in (("dtype", "fp16"), ("spatial", 3), ("variant", "backward_data"), ("epilogue", "Gelu")):
        assert len(set(frame.signature_words(replace(one, **{name: value}))) - words) == 1, name
    assert set(frame.signature_words(replace(one, epilogue="Relu"))) == words, "which costs nothing"


def test_how_full_registers_are_is_seen() -> None:
    """One row of 28 pixels and 40 filters: 28 is two times 14, and 40 fills 48, or 64 by halves."""
    p = CONV.problem({"batch": 1, "channels": 8, "filters": 40, "size": "1x28", "window": "1x1"})
    kernels = {
        "warp_tile_m": np.array([14.0, 6.0]),
        "warp_tile_n": np.array([16.0, 64.0]),
        "results": np.array([0.0, 4.0]),
    }
    found = dict(zip(PART.interaction_names, PART.interactions(p, kernel_terms(kernels, 2), 2), strict=True))
    assert found["full_register_m"] == pytest.approx([1.0, 28 / 30])
    assert found["full_filters"] == pytest.approx([40 / 48, 40 / 64])
    assert found["full_results"] == pytest.approx([1.0, 1 / 4])
    assert found["register_tiles_a_unit"] == pytest.approx([2 * 3 / 2, 5 * 1 / 2])
