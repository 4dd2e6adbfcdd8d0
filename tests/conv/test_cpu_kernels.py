"""Every kind of CPU convolution kernel at every ISA level, on problems drawn by seed, against float64.

Tiles are small, so that problems of a few thousand products have several of them; results are poisoned before.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from tests.backends.cpu.gemm.harness import FENCE, Allocate, heap
from tests.built import Built
from tests.conv.harness import prove
from tests.proofs import spread
from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cpu.conv.direct_wgrad import CpuDirectWgradSchedule
from tilewright.backends.cpu.conv.implicit import CpuImplicitSchedule
from tilewright.backends.cpu.conv.lanes import CpuLanesSchedule
from tilewright.backends.cpu.conv.lanes_wgrad import CpuLanesWgradSchedule
from tilewright.backends.cpu.conv.outer import CpuOuterSchedule
from tilewright.backends.cpu.conv.planar import CpuPlanarSchedule
from tilewright.backends.cpu.conv.shared import dot_step
from tilewright.backends.cpu.conv.winograd import CpuWinogradSchedule
from tilewright.backends.cpu.vectors import lanes
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem, dense_strides
from tilewright.ops.conv.spec import ConvSignature, accumulator, default_output
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding as binding_of
from tilewright.runtime.devices import device_of

PROBLEMS = 16
QUICK = 12  # kernels of `make test`
FORWARD, DATA, WEIGHT = "forward", "backward_data", "backward_weight"


def signature(variant: str, dtype: str = "fp32", out: str = "", spatial: int = 3, epilogue: str = "PassThrough",
              num_d: int = 0) -> ConvSignature:  # fmt: skip
    out = out or default_output(dtype)
    return ConvSignature(variant, spatial, dtype, accumulator(dtype), out, out, epilogue, num_d)


def schedule(pipeline: str, made: ConvSignature, arch_name: str) -> Any:
    """A small one: few rows, one or two vectors, little between two saves."""
    arch = arch_by_name(arch_name)
    width, wide = lanes(arch), arch.vector_registers >= 32
    if pipeline == "implicit":
        step = dot_step(made, arch)
        return CpuImplicitSchedule((12, 4 * width, 24 * step), (6, 2 * width, step))
    if pipeline.startswith("winograd"):
        return CpuWinogradSchedule(int(pipeline[-1]), (8, 2 * width), (4, width, 1))
    if pipeline.startswith("outer"):
        step = dot_step(made, arch)
        return CpuOuterSchedule((8, 2 * width, 8 + step), (4, width, step), 3 if pipeline.endswith("split") else 1)
    if pipeline == "planar":
        return CpuPlanarSchedule(512, (4 if wide else 3, 2 * width, 1))
    if pipeline == "direct_wgrad":
        step = dot_step(made, arch)
        return CpuDirectWgradSchedule((2 * width, 8 + step), (5, 2 * width if wide else width, step))
    by_lanes = CpuLanesWgradSchedule if pipeline == "lanes_wgrad" else CpuLanesSchedule
    return by_lanes((7 if wide else 6, width, 1))


# Pipeline, ISA level and what is computed; together they have every pipeline at every level, and every element type
# and kind of epilogue somewhere.
CASES = (
    ("implicit", "x86_64_v4", signature(FORWARD)),
    ("implicit", "x86_64_v4", signature(DATA)),
    ("implicit", "x86_64_v3", signature(FORWARD, "fp16", epilogue="Relu", num_d=2)),
    ("implicit", "x86_64_v3", signature(DATA, "bf16", "fp32")),
    ("implicit", "x86_64_v3", signature(FORWARD, "int8")),
    ("implicit", "generic", signature(FORWARD, "int8", "fp32", epilogue="MultiDMultiply", num_d=1)),
    ("implicit", "generic", signature(DATA)),
    ("implicit", "x86_64_v4_vnni", signature(FORWARD, "int8", "int8")),
    ("implicit", "x86_64_v4_bf16", signature(FORWARD, "bf16", epilogue="Silu", num_d=1)),
    ("implicit", "x86_64_v4_bf16", signature(FORWARD, "bf16")),
    ("planar", "x86_64_v4", signature(FORWARD)),
    ("planar", "x86_64_v4", signature(DATA)),
    ("planar", "x86_64_v3", signature(FORWARD, "bf16", epilogue="Relu", num_d=2)),
    ("planar", "x86_64_v3", signature(DATA, "fp16", "fp32")),
    ("planar", "generic", signature(FORWARD, epilogue="MultiDMultiply", num_d=1)),
    ("planar", "generic", signature(DATA)),
    ("winograd2", "x86_64_v4", signature(FORWARD, epilogue="MultiDAdd", num_d=1)),
    ("winograd2", "x86_64_v3", signature(DATA, "bf16")),
    ("winograd2", "generic", signature(FORWARD)),
    ("winograd4", "x86_64_v4", signature(DATA)),
    ("outer", "x86_64_v4", signature(WEIGHT)),
    ("outer_split", "x86_64_v3", signature(WEIGHT, "bf16")),
    ("outer", "generic", signature(WEIGHT, "fp16", "fp32")),
    ("outer", "x86_64_v4_bf16", signature(WEIGHT, "bf16")),
    ("outer_split", "x86_64_v4_bf16", signature(WEIGHT, "bf16", "fp32")),
    ("lanes", "x86_64_v4", signature(FORWARD, epilogue="Relu", num_d=1)),
    ("lanes", "x86_64_v4", signature(FORWARD)),
    ("lanes", "x86_64_v4", signature(DATA)),
    ("lanes", "x86_64_v3", signature(DATA, "fp16")),
    ("lanes", "generic", signature(FORWARD, "bf16", "fp32")),
    ("lanes", "generic", signature(FORWARD, "int8")),
    ("direct_wgrad", "x86_64_v4", signature(WEIGHT)),
    ("direct_wgrad", "x86_64_v3", signature(WEIGHT, "bf16", "fp32")),
    ("direct_wgrad", "x86_64_v4", signature(WEIGHT, "fp16", "fp16", spatial=3)),
    ("direct_wgrad", "generic", signature(WEIGHT)),
    ("direct_wgrad", "x86_64_v4_bf16", signature(WEIGHT, "bf16")),
    ("lanes_wgrad", "x86_64_v4", signature(WEIGHT)),
    ("lanes_wgrad", "x86_64_v3", signature(WEIGHT, "bf16", "fp32")),
    ("lanes_wgrad", "generic", signature(WEIGHT)),
)
SPECS = [KernelSpec("conv", made, schedule(pipeline, made, arch), arch) for pipeline, arch, made in CASES]
KERNELS = tuple(SPECS)  # built together


def drawn(seed: int, made: ConvSignature, square: bool, small: bool) -> ConvProblem:
    """Any groups, strides, dilations and uneven padding; with odd channels, some operands with gaps between rows."""
    draw = random.Random(seed)
    groups = draw.choice((1, 1, 2, 3, 16, 35) if small else (1, 1, 1, 2, 3, 8))
    most = 5 if groups > 3 or small else draw.choice((4, 21, 40))
    channels, filters = (draw.randint(1, most) for _ in range(2))
    if small and draw.random() < 0.4:
        channels, filters = 1, draw.randint(1, 2)
    long = small and draw.random() < 0.4  # depthwise, on lines most of which is inside: read where they lie
    if long:
        groups, channels, filters = draw.choice((16, 17, 35, 48, 83)), 1, 1
    fields: dict[str, list[int]] = {one: [] for one in ("size", "window", "stride", "dilation", "before", "after")}
    for axis in range(3):
        fixed = square and axis > 0
        window = 3 if fixed else draw.choice((1, 2, 3, 3, 5) if axis else (1, 1, 2, 3))
        stride, dilation = 1 if fixed else draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2))
        before, after = draw.randint(0, 3), draw.randint(0, 3)
        if long and axis == 2:
            window, stride, dilation = draw.choice((3, 3, 5, 7, 4)), draw.choice((1, 2)), 1
        reach = (window - 1) * dilation + 1
        size = draw.randint(max(1, reach - before - after), max(reach, 14 if axis else 5))
        size += draw.randint(5, 35) if long and axis == 2 else 0
        for name, value in zip(fields, (size, window, stride, dilation, before, after), strict=True):
            fields[name].append(value)
    problem = ConvProblem(
        batch=draw.randint(1, 2),
        channels=groups * channels,
        filters=groups * filters,
        groups=groups,
        variant=made.variant,
        dtype=made.dtype,
        dtype_out=made.dtype_out,
        epilogue=made.epilogue,
        num_d=made.num_d,
        full_d=draw.randint(0, made.num_d),
        **{name: tuple(values) for name, values in fields.items()},  # type: ignore[arg-type]
    )
    kind = draw.random()
    return with_gaps(draw, problem) if kind < 0.25 else in_other_orders(draw, problem) if kind < 0.6 else problem


def with_gaps(draw: random.Random, problem: ConvProblem) -> ConvProblem:
    """Rows of x, w or y a little longer than they need be."""
    name = draw.choice("xwy")
    shape = getattr(problem, f"{name}_shape")
    strides, step = [1], shape[-1]
    for size in reversed(shape[1:-1]):
        step += draw.randint(0, 3)
        strides.append(step)
        step *= size
    found: dict[str, Any] = {f"{name}_strides": (*reversed([*strides, step]),)}
    return replace(problem, **found)


def in_other_orders(draw: random.Random, problem: ConvProblem) -> ConvProblem:
    """Some of x, w and y channels-first, or in any order of dimensions, some with gaps: what kernels turn."""
    found: dict[str, Any] = {}
    for name in draw.sample("xwy", draw.randint(1, 3)):
        shape = getattr(problem, f"{name}_shape")
        order = [0, len(shape) - 1, *range(1, len(shape) - 1)]  # slowest first
        if draw.random() < 0.3:
            draw.shuffle(order)
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step = step * shape[axis] + (draw.randint(0, 2) if draw.random() < 0.3 else 0)
        found[f"{name}_strides"] = tuple(strides)
    return replace(problem, **found)


def drawings(spec: KernelSpec, count: int = PROBLEMS, seed: int = 0) -> Iterator[ConvProblem]:
    pipeline, found = spec.schedule.pipeline, 0
    while found < count:
        seed += 1
        problem = drawn(seed, spec.signature, pipeline == "winograd", pipeline.startswith("lanes"))
        if not op("conv").problem_violations(problem, spec.arch) and not op("conv").supports(spec, problem):
            found += 1
            yield problem


@pytest.mark.sampled(QUICK)
@pytest.mark.parametrize(
    "spec", SPECS, ids=lambda spec: f"{spec.schedule.pipeline}-{spec.arch}-{spec.signature.label()}"
)
def test_it_computes_what_float64_computes(spec: KernelSpec, built: Built) -> None:
    assert not op("conv").check(spec)
    worst = max(prove_problem(spec, built, problem, number) for number, problem in enumerate(drawings(spec)))
    print(f"{spec.name}: at most {worst:.3f} of the bound")


def prove_problem(spec: KernelSpec, built: Built, problem: ConvProblem, seed: int = 0) -> float:
    """On one thread and on two, in poisoned memory; the larger share of the bound."""
    kernel, binding, device = built[spec], binding_of("conv"), device_of(spec.arch)
    sample, worst = samples.make(binding, problem, seed, device), 0.0
    for threads in (1, 2):
        samples.poison_results(binding, sample)
        samples.runner(binding, kernel, problem, sample, device, threads)()
        verdict = samples.check(binding, problem, sample, (spec,))
        assert verdict, f"{problem.describe()} on {threads} thread(s): {verdict.detail}"
        worst = max(worst, verdict.bound_ratio)
    return worst


# Rows of the window are read as one where their channels are few, in pairs too; of 5x5 three channels exceed a chunk.
@pytest.mark.parametrize("window", [(1, 3, 3), (1, 5, 5), (1, 1, 7)], ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_few_channels_in_pairs(channels: int, window: tuple[int, ...], built: Built) -> None:
    spec = SPECS[CASES.index(("implicit", "x86_64_v4_bf16", signature(FORWARD, "bf16")))]
    for stride, filters in ((1, 64), (2, 19)):
        prove_problem(spec, built, ConvProblem(
            2, channels, filters, (1, 14, 23), window, 1, (1, 1, stride), before=(0, 1, 2), dtype="bf16",
        ))  # fmt: skip


PAIRS = [one for one in SPECS if one.schedule.pipeline in ("outer", "direct_wgrad") and one.schedule.warp_tile[2] == 2]


# Gradients of weights multiply two pixels at once: ranges of taps begin and end anywhere, lines have odd and even
# lengths, or one pixel; 1x1 filters pack only what they meet, few channels are patches.
@pytest.mark.parametrize("spec", PAIRS, ids=lambda spec: f"{spec.schedule.label()}-{spec.signature.label()}")
@pytest.mark.parametrize("channels", [1, 3, 17, 40])
def test_gradients_in_pairs_of_pixels(channels: int, spec: KernelSpec, built: Built) -> None:
    for size, window, stride, dilation, before in (
        (12, 3, 1, 1, 1), (13, 3, 2, 1, 1), (17, 5, 1, 1, 2), (16, 4, 3, 2, 5), (14, 1, 1, 1, 0), (15, 1, 2, 1, 0),
        (5, 5, 1, 1, 0), (33, 3, 1, 2, 2),
    ):  # fmt: skip
        prove_problem(spec, built, ConvProblem(
            2, channels, 21, (1, 6, size), (1, 1 if window == 1 else 3, window), 1, (1, 1, stride), (1, 1, dilation),
            (0, 1 if window > 1 else 0, before), variant=WEIGHT, dtype="bf16", dtype_out=spec.signature.dtype_out,
        ))  # fmt: skip


WIDE = [one for one in SPECS if one.schedule.pipeline == "implicit" and not one.signature.num_d]


# Positions are numbered through the images first where that leaves out more padding.
@pytest.mark.sampled(3)
@pytest.mark.parametrize("spec", WIDE, ids=lambda spec: f"{spec.arch}-{spec.signature.label()}")
@pytest.mark.parametrize("images", [2, 5])
def test_windows_wider_than_images(images: int, spec: KernelSpec, built: Built) -> None:
    for size, stride, dilation, before in (((1, 5, 6), 1, 1, 3), ((2, 4, 3), 2, 1, 2), ((1, 3, 7), 1, 2, 5)):
        prove_problem(spec, built, ConvProblem(
            images, 18, 21, size, (1, 7, 5), 1, (1, stride, stride), (1, dilation, dilation), (0, before, before),
            variant=spec.signature.variant, dtype=spec.signature.dtype, dtype_out=spec.signature.dtype_out,
        ))  # fmt: skip


DEPTHWISE = [one for one in SPECS if one.schedule.pipeline == "lanes_wgrad"]


# Both operands are read where they lie; the last vector of 19 and 35 channels begins earlier.
@pytest.mark.sampled(4)
@pytest.mark.parametrize("spec", DEPTHWISE, ids=lambda spec: f"{spec.arch}-{spec.signature.label()}")
@pytest.mark.parametrize("window", [3, 5, 7])
def test_gradients_of_depthwise_weights(window: int, spec: KernelSpec, built: Built) -> None:
    for channels, stride, before in ((19, 1, window // 2), (35, 2, window - 1), (16, 1, 0), (48, 3, 1)):
        prove_problem(spec, built, ConvProblem(
            2, channels, channels, (3, 9, 17), (2, window, window), channels, (1, 1, stride), (1, 2, 1),
            (1, window, before), (0, window, window - 1), variant=WEIGHT, dtype=spec.signature.dtype,
            dtype_out=spec.signature.dtype_out,
        ))  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages with mprotect")
@pytest.mark.parametrize("count", [QUICK, pytest.param(len(SPECS), marks=pytest.mark.proof)])
def test_operands_against_forbidden_pages(built: Built, pytestconfig: pytest.Config, count: int) -> None:
    assert built[SPECS[-1]]
    built.together(spread(SPECS, count))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.conv.fenced_pages", str(count)], cwd=pytestconfig.rootpath,
        env=settings.child_environment(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "stayed inside" in ended.stdout


FAR = [
    one
    for one in SPECS
    if one.arch == "x86_64_v4" and one.signature.dtype_out == "fp32" and one.signature.variant != WEIGHT
]


def lines_at(shift: int) -> Allocate:
    """Memory that begins `shift` bytes behind the beginning of a line of a cache."""

    def allocate(size: int, element: int) -> tuple[Any, int]:
        memory, _ = heap(size + 64, element)
        return memory, FENCE + (shift - memory.ctypes.data - FENCE) % 64

    return allocate


@pytest.mark.sampled(len(FAR))  # every kernel, and both shifts
@pytest.mark.parametrize("spec", FAR, ids=lambda spec: f"{spec.schedule.pipeline}-{spec.signature.label()}")
@pytest.mark.parametrize("shift", [0, 4])
def test_results_no_cache_keeps_are_right_wherever_they_lie(spec: KernelSpec, shift: int, built: Built) -> None:
    """Over 4 MB: whole lines of a cache are written past it, where they begin as it has them."""
    made = spec.signature
    channels, filters = (3, 64) if made.variant == FORWARD else (64, 3)
    problem = ConvProblem(
        1, channels, filters, (1, 130, 132), (1, 3, 3), before=(0, 1, 1), variant=made.variant,
        epilogue=made.epilogue, num_d=made.num_d,
    )  # fmt: skip

    prove(built[spec], problem, threads=2, allocate=lines_at(shift))


@pytest.mark.sampled(6)  # every kernel, both shifts, both counts
@pytest.mark.parametrize("spec", [one for one in FAR if one.schedule.pipeline == "lanes"],
                         ids=lambda spec: spec.signature.label())  # fmt: skip
@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize("channels", [64, 72])
def test_depthwise_results_no_cache_keeps(spec: KernelSpec, shift: int, channels: int, built: Built) -> None:
    """Read where they lie: the last vector of 72 channels begins earlier, and so do the last pixels of a line."""
    made = spec.signature
    problem = ConvProblem(
        1, channels, channels, (1, 150, 266), (1, 3, 3), channels, (1, 1, 2), before=(0, 1, 1), after=(0, 1, 0),
        variant=made.variant, epilogue=made.epilogue, num_d=made.num_d, full_d=made.num_d,
    )  # fmt: skip
    prove(built[spec], problem, threads=2, allocate=lines_at(shift))


TURNED = [
    one
    for one in SPECS
    if one.arch == "x86_64_v4" and one.signature.dtype == "fp32" and one.schedule.pipeline in (
        "implicit", "planar", "lanes", "lanes_wgrad", "outer")
]  # fmt: skip


# The check of many groups of filters' gradients takes 12 s.
@pytest.mark.parametrize(("spec", "groups"), [
    pytest.param(one, groups, id=f"{groups}-{one.schedule.pipeline}-{one.signature.label()}",
                 marks=[pytest.mark.proof] if one.schedule.pipeline == "outer" and groups > 1 else [])
    for groups in (1, 150) for one in TURNED
])  # fmt: skip
def test_what_is_turned_goes_image_by_image_and_group_by_group(spec: KernelSpec, groups: int, built: Built) -> None:
    """Copies of three images do not fit 3 MB, nor do those of 150 groups 1 MB: in parts, the last a smaller."""
    made, each = spec.signature, 1 if groups > 1 else 70
    if groups == 1 and spec.schedule.pipeline.startswith("lanes"):
        each = 20
    first = ConvProblem(
        3, each * groups, groups if groups > 1 else 3, (1, 86, 90), (1, 3, 1), groups, before=(0, 1, 0),
        variant=made.variant, epilogue=made.epilogue, num_d=made.num_d, full_d=made.num_d,
    )  # fmt: skip
    strides = {}
    for name in "xwy":
        outer, *pixels, channels = getattr(first, f"{name}_shape")
        far, apart, *steps = dense_strides((outer, channels, *pixels))
        strides[f"{name}_strides"] = (far, *steps, apart)
    problem = first.laid(**strides)
    if op("conv").supports(spec, problem):
        pytest.skip("the kernel is for other groups")
    prove_problem(spec, built, problem, 7)


BANDED = [one for one in SPECS if one.schedule.pipeline == "direct_wgrad"]


@pytest.mark.parametrize("spec", BANDED, ids=lambda spec: f"{spec.arch}-{spec.signature.label()}")
@pytest.mark.parametrize("groups", [1, 5])
def test_gradients_summed_in_bands_are_the_same_on_any_number_of_threads(
    spec: KernelSpec, groups: int, built: Built
) -> None:
    """Of one bundle of groups there are fewer items than a team has use for: lines are cut into bands."""
    channels, filters = (3, 20) if groups == 1 else (2, 3)
    problem = ConvProblem(
        2, channels * groups, filters * groups, (2, 43, 41), (1, 5, 3), groups, before=(0, 2, 1), after=(0, 1, 2),
        variant=WEIGHT, dtype=spec.signature.dtype, dtype_out=spec.signature.dtype_out,
    )  # fmt: skip
    kernel, binding, device = built[spec], binding_of("conv"), device_of(spec.arch)
    sample = samples.make(binding, problem, 1, device)
    results = []
    for threads in (1, 2, 3):
        samples.poison_results(binding, sample)
        samples.runner(binding, kernel, problem, sample, device, threads)()
        verdict = samples.check(binding, problem, sample, (spec,))
        assert verdict, verdict.detail
        results.append(sample.operands[-1].tobytes())
    assert len(set(results)) == 1


def test_the_drawings_have_what_they_promise() -> None:
    """So that the proof above is no proof of easy problems."""
    found = [one for spec in SPECS for one in drawings(spec)]
    assert any(max(one.stride) > 1 for one in found)
    assert any(max(one.dilation) > 1 for one in found)
    assert any(one.before != one.after for one in found)
    assert any(one.groups > 8 and one.group_channels == 1 for one in found)
    assert {1, 2} == {one.stride[-1] for one in found if one.groups >= 16 and one.out[-1] > 12 and one.window[-1] > 2}
    assert any(one.groups > 1 and one.group_channels % 2 for one in found)
    assert any(one != one.dense() for one in found)
    assert any(prod(one.window) == 1 for one in found)
    for name in "xwy":
        turned = [one for one in found if getattr(one, f"{name}_strides")[-1] != 1]
        assert {one.variant for one in turned} == {FORWARD, DATA, WEIGHT}
        assert {one.dtype for one in turned} >= {"fp32", "bf16", "fp16"}
