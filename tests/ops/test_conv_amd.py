"""Convolution on AMD GPUs: every rule with an example that breaks it, both checks on drawn problems, pools, launches.

What kernels compute is shown by tests/amd_emulated.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.hosted import hip_kernels, launches
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import op_kernels
from tilewright.backends.hip.conv import KERNELS, ck_tile, shared
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule, strategies
from tilewright.backends.hip.conv.ck_tile.shape import loads
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem, ConvSignature
from tilewright.ops.conv.problem import channels_first
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import VARIANTS, accumulator
from tilewright.runtime.bindings.conv.dense import stage

CONV = op("conv")
SEED, COUNT = 20261115, 200
PLAIN = CkTileConvSchedule("compv3", (128, 128, 32), (32, 32, 16), (2, 2, 1))


def signature(variant: str = "forward", dtype: str = "fp16", spatial: int = 2) -> ConvSignature:
    out = "int32" if dtype == "int8" else dtype
    return ConvSignature(variant, spatial, dtype, accumulator(dtype), out, out)


def make(variant: str = "forward", dtype: str = "fp16", arch: str = "gfx942", **fields: Any) -> KernelSpec:
    changed: Any = replace(PLAIN, **fields)
    return KernelSpec("conv", signature(variant, dtype), changed, arch)


def tiled(variant: str = "forward", arch: str = "gfx1100", **fields: Any) -> KernelSpec:
    return KernelSpec("conv", signature(variant), TiledConvSchedule("wmma", (64, 64, 32), (2, 2, 1), **fields), arch)


def problem(**fields: Any) -> ConvProblem:
    given = {"batch": 2, "channels": 16, "filters": 16, "size": (9, 9), "window": (3, 3), "dtype": "fp16"}
    return ConvProblem(**{**given, **fields})


BROKEN: dict[str, list[KernelSpec]] = {
    "amd-vector": [
        make(vectors=(16, 8, 8)),
        make(vectors=(8, 8, 16)),
        make(store="direct", vectors=(8, 8, 8)),
        make(tile=(32, 32, 32), warp_tile=(16, 16, 16)),  # a lane has four neighbours of such a tile
    ],
    "amd-merged": [make("backward_weight", merged=4)],
    "amd-split-k": [make(split_k=2), make("backward_data", split_k=4)],
    "amd-registers": [make(tile=(256, 256, 64)), make(tile=(256, 128, 128), vectors=(1, 1, 8))],
}  # fmt: skip
_FAR = (1 << 31, 1 << 30, 1 << 20, 1)
UNSERVED: dict[str, list[tuple[KernelSpec, ConvProblem]]] = {
    "amd-channels-last": [(make(), problem(x_strides=(16 * 81, 9, 1, 81)))],
    "amd-strides": [(make(), problem(x_strides=(16 * 81, -16 * 9, 16, 1)))],
    "amd-dense": [
        (make(), problem(w_strides=(9 * 32, 96, 32, 1))),
        (make("backward_weight"), problem(variant="backward_weight", y_strides=(1600, 200, 16, 1))),
        (make(special="pointwise"), problem(window=(1, 1), x_strides=(1600, 160, 16, 1))),
    ],
    "amd-pointwise": [
        (make(special="pointwise"), problem()),
        (make(special="pointwise"), problem(window=(1, 1), before=(1, 1))),
    ],
    "amd-alignment": [
        (make(), problem(channels=12)),
        (make(), problem(aligned=False)),
        (make(), problem(x_strides=(2000, 180, 20, 1))),
        (make("backward_data"), problem(variant="backward_data", filters=12)),
        (make("backward_weight"), problem(variant="backward_weight", filters=12)),
    ],
    "amd-operand-size": [(make(), problem(x_strides=_FAR))],
    "amd-merged": [(make(merged=4, vectors=(8, 2, 8)), problem(channels=48, filters=48, groups=6))],
    "amd-size": [(make(), problem(dilation=(1 << 30, 1), before=(1 << 30, 0)))],
    "amd-tiles": [
        (make(tile=(16, 16, 32), warp_tile=(16, 16, 16), warp_grid=(1, 1, 1)),
         problem(batch=1 << 29, size=(1, 1), window=(1, 1), filters=64, x_strides=(0, 16, 16, 1))),
    ],
    "amd-groups": [(make(), problem(channels=8 << 16, filters=1 << 16, groups=1 << 16))],
    "amd-residues": [
        (make("backward_data"), problem(variant="backward_data", size=(64, 64), window=(1, 1), stride=(32, 32))),
    ],
}  # fmt: skip


def test_every_rule_has_an_example_here() -> None:
    found = {
        node.args[0].value
        for module in (ck_tile, shared)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Violation"
        if isinstance(node.args[0], ast.Constant)
    }
    limits = Path(inspect.getfile(shared)).with_name("include") / "tilewright/hip/conv/limits.h"
    found |= set(re.findall(r'Rule amd_\w+\{\s*"([a-z-]+)"', limits.read_text(encoding="utf-8")))
    assert found - {"amd-copied"} == {*BROKEN, *UNSERVED}, "a rule came or went: add or remove its failing example"


@pytest.mark.parametrize("rule", BROKEN)
def test_illegal_kernels_are_refused_by_name(rule: str) -> None:
    for spec in BROKEN[rule]:
        found = CONV.check(spec)
        assert rule in {one.rule for one in found}, (spec.name, found)
        assert all(one.message and one.remedy for one in found)


@pytest.mark.parametrize("rule", UNSERVED)
def test_problems_a_kernel_was_not_made_for(rule: str) -> None:
    for spec, one in UNSERVED[rule]:
        if rule != "amd-tiles":
            assert CONV.check(spec) == []
        assert problem_violations(one) == []
        assert rule in {found.rule for found in CONV.supports(spec, one)}, (spec.name, one)


def test_the_product_s_rules_hold() -> None:
    """Those of CK Tile's instances, and which products an arch has."""
    for rule, spec in {
        "amd-lds": make(tile=(256, 256, 64), pipeline="compv4"),
        "amd-warp-tile": make(warp_tile=(32, 32, 4)),
        "amd-scheduler": make(scheduler="interwave"),
        "amd-transposed-load": make("backward_data", arch="gfx950"),
        "amd-dtype-mix": make(dtype="int8", arch="gfx90a", warp_tile=(32, 32, 16), vectors=(16, 16, 4)),
        "amd-wmma": make(arch="gfx1100"),
        "amd-no-matrix-kernel": make(arch="gfx908"),
    }.items():
        assert rule in {one.rule for one in CONV.check(spec)}, spec.name


def drawn(rng: random.Random, rank: int, variant: str) -> ConvProblem:
    """Mostly what kernels take; now and then sizes, strides or gaps they do not."""

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(rank))

    groups = rng.choice((1, 1, 1, 2, 3, 4, 8))
    channels, filters = groups * rng.choice((1, 2, 4, 8, 16, 24)), groups * rng.choice((1, 2, 4, 8, 16))
    window, pointwise = each(1, 3, 3, 5), rng.random() < 0.3
    one = ConvProblem(
        rng.choice((0, 1, 2)), channels, filters, each(5, 9, 20), (1,) * rank if pointwise else window, groups,
        (1,) * rank if pointwise else each(1, 1, 2, 25), each(1, 1, 1, 2), each(0, 0) if pointwise else each(0, 1, 2),
        (), variant, "fp16",
    )  # fmt: skip
    if rng.random() < 0.3:
        name = rng.choice(("x_strides", "w_strides", "y_strides"))
        strides = list(getattr(one, name))
        place = rng.randrange(len(strides))
        strides[place] += rng.choice((1, 8, 64, 1 << 30)) * strides[place]
        changed: Any = {name: tuple(strides)}
        one = replace(one, **changed)
    if rng.random() < 0.3:
        one = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"
                          if rng.random() < 0.7})  # fmt: skip
    return one


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The host's half of a few kernels of each direction, by digest."""
    specs = []
    for variant in VARIANTS:
        split = 4 if variant == "backward_weight" else 1
        together = {"merged": 4, "vectors": (8, 2, 8)}
        merged = [] if split > 1 else [together, {**together, "special": "copied"}]
        kinds: list[dict[str, Any]] = [
            {},
            {"vectors": (2, 2, 8)},
            {"special": "pointwise"},
            {"special": "copied"},
            *merged,
        ]
        for fields in (*kinds, {"vectors": (1, 8, 8)}, {"vectors": (2, 1, 8), "special": "copied"}):
            given: Any = {**fields, "split_k": split}
            specs.append(make(variant, **given))
        specs += [tiled(variant, split_k=split, special=special) for special in ("any", "copied")]
    folder = tmp_path_factory.mktemp("hosted")
    return {spec.digest: kernel for spec, kernel in zip(specs, hip_kernels(specs, folder), strict=True)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_checks_agree(hosted: dict[str, Any], variant: str) -> None:
    rng, said = random.Random(f"{SEED} {variant}"), set()
    kernels = [one for one in hosted.values() if one.spec.signature.variant == variant]
    problems = [one for one in (drawn(rng, 2, variant) for _ in range(COUNT)) if not problem_violations(one)]
    known = [one for each in UNSERVED.values() for _, one in each]
    problems += [one for one in known if one.variant == variant and one.aligned]
    assert len(problems) > COUNT // 4
    for kernel in kernels:
        for one in problems:
            made = stage(one)
            for pointer in made.pointers:  # nothing is read
                ctypes.c_void_p.from_address(ctypes.addressof(made.args) + pointer.offset).value = 1 << 20
            refused, violations = kernel.refusal(made.args), CONV.supports(kernel.spec, one)
            assert bool(refused) == bool(violations), (kernel.name, one, refused, violations)
            said.add((kernel.name, bool(refused)))
    assert len(said) == 2 * len(kernels), "a kernel took nothing, or refused nothing"


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_in_copies_judge_alignment_as_problems_do(hosted: dict[str, Any], variant: str) -> None:
    """Whichever of the operands lies off."""
    rng = random.Random(f"{SEED} off {variant}")
    kernels = [one for one in hosted.values()
               if one.spec.signature.variant == variant and one.spec.schedule.special == "copied"]  # fmt: skip
    for one in (drawn(rng, 2, variant) for _ in range(COUNT)):
        if problem_violations(one):
            continue
        made, off = stage(one), rng.randrange(3)
        for number, pointer in enumerate(made.pointers):
            where = (1 << 20) + (2 if number == off else 0)
            ctypes.c_void_p.from_address(ctypes.addressof(made.args) + pointer.offset).value = where
        for kernel in kernels:
            refused, violations = kernel.refusal(made.args), CONV.supports(kernel.spec, replace(one, aligned=False))
            assert bool(refused) == bool(violations), (kernel.name, one, off, refused, violations)


def _launched(hosted: dict[str, Any], spec: KernelSpec, one: ConvProblem) -> list[Any]:
    kernel, made = hosted[spec.digest], stage(one)
    for pointer in made.pointers:
        ctypes.c_void_p.from_address(ctypes.addressof(made.args) + pointer.offset).value = 1 << 20
    return launches(kernel, made.args, 1 << 20)


def test_residues_share_a_launch(hosted: dict[str, Any]) -> None:
    """Four residues of 64 channels by 1, 2, 2 and 4 taps: all have more turns than the short tails are for, but one."""
    one = problem(variant="backward_data", channels=16, filters=64, size=(9, 9), stride=(2, 2), before=(1, 1))
    found = _launched(hosted, make("backward_data"), one)
    assert sorted(each.grid[2] for each in found) == [1, 3]
    assert {each.grid[1] for each in found} == {1}
    forward = _launched(hosted, make(), problem(groups=2))
    assert [list(each.grid) for each in forward] == [[1, 2, 1]]


def test_parts_of_a_gradient_are_added_by_a_second_launch(hosted: dict[str, Any]) -> None:
    spec = make("backward_weight", split_k=4)
    one = problem(variant="backward_weight", batch=8)
    block, finish = _launched(hosted, spec, one)
    assert (list(block.grid), block.threads) == ([2, 1, 4], 256)  # 144 columns; 392 pixels in parts of 4 turns of 32
    assert finish.threads == 256
    made = stage(one)
    assert hosted[spec.digest].workspace_bytes(made.args, 1) == 4 * 16 * 144 * 4


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_number_of_channels_has_a_default_kernel(variant: str, arch: str) -> None:
    """Dense channels-last problems never fall to the floor, whatever divides their channels and filters."""
    for dtype in ("fp16", "bf16"):
        legal = CONV.candidates(signature(variant, dtype), arch)
        assert len(legal) > 4
        assert all(isinstance(one.schedule, CkTileConvSchedule) for one in legal)
        for channels in (1, 2, 3, 4, 6, 8, 16, 20):
            one = problem(variant=variant, dtype=dtype, channels=2 * channels, filters=2 * channels, groups=2)
            assert any(not CONV.supports(spec, one) for spec in legal), (arch, channels)


def test_wide_kernels_are_chosen_where_channels_allow() -> None:
    kernels: Any = op_kernels("hip", "conv")
    one = problem(batch=32, channels=64, filters=64, size=(56, 56), before=(1, 1))
    legal = [spec for spec in CONV.candidates(one.signature, "gfx942") if not CONV.supports(spec, one)]
    best = min(legal, key=lambda spec: kernels.estimate(spec, one, 1))
    assert loads(best.signature, best.schedule) == (8, 8)
    floor = KernelSpec("conv", one.signature, LoopsSchedule(), "gfx942")
    assert kernels.estimate(best, one, 1) < kernels.estimate(floor, one, 1)


@pytest.mark.parametrize("variant", ["forward", "backward_data"])
@pytest.mark.parametrize("channels", [1, 4])
def test_groups_of_few_channels_are_merged(variant: str, channels: int) -> None:
    """A tile would be nearly empty of one of them, and loads narrow."""
    kernels: Any = op_kernels("hip", "conv")
    one = problem(variant=variant, batch=32, channels=32 * channels, filters=32 * channels, size=(28, 28), groups=32)
    legal = [spec for spec in CONV.candidates(one.signature, "gfx942") if not CONV.supports(spec, one)]
    best = min(legal, key=lambda spec: kernels.estimate(spec, one, 1)).schedule
    assert best.merged > 1
    assert best.vectors[0] == 8


def test_merged_groups_are_one_block(hosted: dict[str, Any]) -> None:
    spec = make(merged=4, vectors=(8, 2, 8))
    found = _launched(hosted, spec, problem(channels=32, filters=48, groups=8))
    assert [list(each.grid) for each in found] == [[1, 2, 1]]  # 98 pixels by 24 filters; two times four groups


def test_archs_without_ck_tile_have_tiles_of_our_own_and_the_floor() -> None:
    for arch, pipeline in (("gfx908", "mfma"), ("gfx1250", "wmma"), ("gfx1100", "wmma"), ("gfx1201", "wmma")):
        *found, floor = KERNELS.schedules("full", signature(), arch_by_name(arch))
        assert {one.pipeline for one in found} == {pipeline}
        assert floor == LoopsSchedule()


def test_copies_are_launches_before_and_after(hosted: dict[str, Any]) -> None:
    one = problem(channels=20, filters=64)
    first = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})
    spec = make(special="copied")
    assert [each.threads for each in _launched(hosted, spec, one)] == [256] * 3, "x and w of 24 channels"
    assert [each.threads for each in _launched(hosted, spec, first)] == [256] * 4, "and y is turned back"
    made = stage(first)
    room = hosted[spec.digest].workspace_bytes(made.args, 1)
    copies = [2 * 81 * 24 * 2, 64 * 9 * 24 * 2, 2 * 49 * 64 * 2]
    assert room == sum(-(-one // 256) * 256 for one in copies)


def test_strategies_are_distinct_and_begin_with_the_widest() -> None:
    for dtype, widest in (("fp16", 8), ("fp32", 4), ("int8", 16)):
        found = strategies(signature(dtype=dtype))
        assert len(found) == len(set(found))
        assert found[0][:2] == (widest, widest)
        assert any(one[:2] == (1, 1) for one in found)


def test_headers_of_another_version_are_one_clear_error(tmp_path: Path) -> None:
    del tmp_path
    kernels: Any = op_kernels("hip", "conv")
    assert kernels.header_needs("late-2025") is None
    assert set(kernels.header_needs("mid-2025").kinds) == set(CkTileConvSchedule.pipelines)
