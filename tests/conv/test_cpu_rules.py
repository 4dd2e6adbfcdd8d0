"""Each rule of the CPU's convolution schedules has an example that breaks it, and each limit a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.arch import arch as arch_by_name
from tilewright.arch import host
from tilewright.backends.base import backend
from tilewright.backends.cpu.conv import KERNELS
from tilewright.backends.cpu.conv.direct_wgrad import CpuDirectWgradSchedule
from tilewright.backends.cpu.conv.implicit import CpuImplicitSchedule
from tilewright.backends.cpu.conv.lanes import CpuLanesSchedule
from tilewright.backends.cpu.conv.lanes_wgrad import CpuLanesWgradSchedule
from tilewright.backends.cpu.conv.outer import CpuOuterSchedule
from tilewright.backends.cpu.conv.planar import CpuPlanarSchedule
from tilewright.backends.cpu.conv.winograd import CpuWinogradSchedule
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import VARIANTS, ConvSignature, accumulator, default_output

ARCH = "x86_64_v4"
LAYER = ConvProblem(1, 32, 32, (8, 8), (3, 3), before=(1, 1))


def signature(variant: str = "forward", dtype: str = "fp32") -> ConvSignature:
    out = default_output(dtype)
    return ConvSignature(variant, 2, dtype, accumulator(dtype), out, out)


IMPLICIT = CpuImplicitSchedule((12, 32, 64), (6, 32, 1))
BROKEN: tuple[tuple[str, ConvSignature, Any], ...] = (
    ("cpu-direction", signature("backward_weight"), IMPLICIT),
    ("cpu-direction", signature(), CpuOuterSchedule((4, 16, 64), (4, 16, 1))),
    ("cpu-vector", signature(), CpuImplicitSchedule((12, 24, 64), (6, 24, 1))),
    ("cpu-vector", signature(), CpuLanesSchedule((6, 32, 1))),
    ("cpu-dot-step", signature(), CpuImplicitSchedule((12, 32, 64), (6, 32, 2))),
    ("cpu-dot-step", signature("backward_weight"), CpuOuterSchedule((4, 16, 64), (4, 16, 2))),
    ("cpu-registers", signature(), CpuImplicitSchedule((32, 32, 64), (16, 32, 1))),
    ("cpu-registers", signature(), CpuLanesSchedule((31, 16, 1))),
    ("cpu-taps", signature("backward_weight"), CpuLanesWgradSchedule((13, 16, 1))),
    ("cpu-tile", signature(), CpuImplicitSchedule((13, 32, 64), (6, 32, 1))),
    ("cpu-tile", signature(), CpuWinogradSchedule(2, (12, 48), (6, 32, 1))),
    ("cpu-tile", signature("backward_weight"), CpuDirectWgradSchedule((48, 64), (6, 32, 1))),
    ("cpu-cache-block", signature(), CpuImplicitSchedule((6000, 3200, 64), (6, 32, 1))),
    ("cpu-split-k", signature("backward_weight"), CpuOuterSchedule((4, 16, 64), (4, 16, 1), 65)),
    ("cpu-cache-block", signature(), CpuPlanarSchedule(1 << 23, (6, 32, 1))),
    ("cpu-planar-type", signature(dtype="int8"), CpuPlanarSchedule(512, (6, 32, 1))),
    ("cpu-winograd", signature(), CpuWinogradSchedule(3, (12, 32), (6, 32, 1))),
    ("cpu-winograd-type", signature(dtype="int8"), CpuWinogradSchedule(2, (12, 32), (6, 32, 1))),
)


@pytest.mark.parametrize(("rule", "made", "schedule"), BROKEN, ids=[one[0] for one in BROKEN])
def test_a_rule_is_broken_alone(rule: str, made: ConvSignature, schedule: Any) -> None:
    found = op("conv").check(KernelSpec("conv", made, schedule, ARCH))
    assert [one.rule for one in found] == [rule]
    assert found[0].remedy


LIMITS: tuple[tuple[str, ConvProblem, Any], ...] = (
    ("cpu-window", ConvProblem(1, 32, 32, (8, 8), (3, 5)), CpuWinogradSchedule(2, (12, 32), (6, 32, 1))),
    ("cpu-window", ConvProblem(1, 32, 32, (8, 8), (3, 3), stride=(1, 2)), CpuWinogradSchedule(2, (12, 32), (6, 32, 1))),
    ("cpu-lines", ConvProblem(1, 257, 4, (8, 8), (3, 3)), CpuDirectWgradSchedule((32, 64), (6, 32, 1))),
    ("cpu-planes", ConvProblem(1, 513, 4, (8, 8), (3, 3)), CpuPlanarSchedule(512, (6, 32, 1))),
    ("cpu-parts", ConvProblem(1, 4, 4, (40, 40), (3, 3), stride=(9, 8)), CpuPlanarSchedule(512, (6, 32, 1))),
    ("cpu-beyond", ConvProblem(1, 4, 4, (8, 8), (3, 3), before=(73, 0), stride=(72, 1)), IMPLICIT),
    ("cpu-beyond", ConvProblem(1, 4, 4, (8, 8), (3, 3), after=(0, 73), stride=(1, 73)), IMPLICIT),
    (
        "cpu-beyond",
        ConvProblem(1, 4, 4, (8, 8), (2, 1), before=(72, 0), dilation=(73, 1), variant="backward_weight"),
        CpuOuterSchedule((4, 16, 64), (4, 16, 1)),
    ),
    ("cpu-strip", ConvProblem(1, 65, 4, (8, 8), (3, 3)), CpuLanesSchedule((6, 16, 1))),
    ("cpu-exact", ConvProblem(1, 42, 4, (8, 8), (5, 5), dtype="int8"), CpuLanesSchedule((6, 16, 1))),
)


@pytest.mark.parametrize(("rule", "problem", "schedule"), LIMITS, ids=[one[0] for one in LIMITS])
def test_a_kernel_was_not_made_for_it(rule: str, problem: ConvProblem, schedule: Any) -> None:
    spec = KernelSpec("conv", problem.signature, schedule, ARCH)
    assert [broken.rule for broken in KERNELS.limits(spec, problem)] == [rule]


def test_steps_that_lead_nowhere_do_not_matter() -> None:
    """A stride between one result and no other, a dilation of one tap."""
    far = ConvProblem(1, 4, 4, (8, 8), (3, 1), stride=(1 << 40, 1), dilation=(1, 1 << 40))
    for schedule in (IMPLICIT, CpuPlanarSchedule(512, (6, 32, 1)), CpuLanesSchedule((6, 16, 1))):
        assert not list(KERNELS.limits(KernelSpec("conv", far.signature, schedule, ARCH), far))


@pytest.mark.parametrize(
    ("arch", "flags", "columns"),
    [
        ("x86_64_v4_vnni", (), 32),
        ("x86_64_v3", (), 16),
        ("x86_64_v4_bf16", (), 16),
        ("x86_64_v4_bf16", ("avx512_bf16", "avx_vnni"), 32),
    ],
)
def test_blocks_of_one_vector_wait_for_loads(
    arch: str, flags: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two multiply-adds start in a cycle; panels of one vector suit 112 channels better, and 72 of AVX2."""
    facts = replace(host.host_facts(), flags=frozenset(flags))
    monkeypatch.setattr(host, "host_facts", lambda: facts)
    filters = 72 if arch == "x86_64_v3" else 112
    problem = ConvProblem(1, 128, filters, (52, 83), (3, 3), before=(1, 1))
    made, known = problem.signature, arch_by_name(arch)
    specs = [KernelSpec("conv", made, one, arch) for one in KERNELS.schedules("default", made, known)]
    chosen = min(specs, key=lambda spec: KERNELS.estimate(spec, problem, 2)).schedule
    assert (chosen.pipeline, chosen.warp_tile[1]) == ("winograd", columns)


@pytest.mark.parametrize("arch", ["generic", "x86_64_v3", ARCH, "x86_64_v4_bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_default_pool_is_small_legal_and_has_every_pipeline(arch: str, variant: str) -> None:
    made = signature(variant)
    found = list(KERNELS.schedules("default", made, arch_by_name(arch)))
    assert len(found) == len(set(found)) <= 10
    assert not [why for one in found for why in op("conv").check(KernelSpec("conv", made, one, arch))]
    assert {one.pipeline for one in found} == {one.name for one in KERNELS.own if variant in one.variants}


@pytest.mark.parametrize("schedule", [
    CpuImplicitSchedule((12, 32, 64), (6, 32, 2)), CpuWinogradSchedule(4, (12, 32), (6, 32, 1)),
    CpuPlanarSchedule(512, (6, 32, 1)),
], ids=lambda one: one.pipeline)  # fmt: skip
def test_costs_are_those_of_the_host_and_of_one_that_is_spoken_of(
    schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of CPUs of one level some start two multiply-adds in a cycle: products cost half, all else the same."""
    spec = KernelSpec("conv", signature(dtype="bf16"), schedule, "x86_64_v4_bf16")
    layer = ConvProblem(4, 128, 128, (32, 32), (3, 3), before=(1, 1), dtype="bf16")

    def seconds(*flags: str) -> float:
        monkeypatch.setattr(host, "host_facts", lambda: replace(facts, flags=frozenset(flags)))
        return backend("cpu").estimate(spec, layer, 1)

    facts = host.host_facts()
    once, twice = seconds("avx512_bf16"), seconds("avx512_bf16", "avx_vnni")
    assert 0.5 * once < twice < once
    with host.speaking_of({"flags": "of another", "l2_bytes": facts.l2_bytes}):
        assert seconds("avx512_bf16", "avx_vnni") == once
