"""Which kernels a run of tests/gpu draws, and that attention's are asked something: needs neither a GPU nor PyTorch."""

from __future__ import annotations

import pytest

from tests.gpu import test_attention as attention
from tests.gpu.conv_cases import CASES
from tests.gpu.sampling import draw
from tilewright.ops.base import KernelSpec

ARCH = "sm_90a"


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[KernelSpec]]:
    heads = attention.cases()
    found = {str(case): case.specs(ARCH) for case in CASES[:2]}
    return found | {str(case): case.specs(ARCH) for case in (*heads[:3], *heads[-2:])}


def kinds(wanted: dict[str, list[KernelSpec]]) -> set[tuple[str, str]]:
    return {(spec.op, spec.schedule.pipeline) for some in wanted.values() for spec in some}


def test_a_sample_leaves_out_no_test_and_no_pipeline(wanted: dict[str, list[KernelSpec]]) -> None:
    sample = draw(wanted, 30, 7)
    assert len(sample.specs) <= max(30, len(kinds(wanted)) + len(wanted))
    assert not sample.whole
    assert {(one.op, one.schedule.pipeline) for one in sample.specs} == kinds(wanted)
    for test, some in sample.kernels.items():
        assert some
        assert set(some) <= set(wanted[test])
    first, *lines = str(sample).splitlines()
    assert first == f"GPU suite: {len(sample.specs)} of {sample.wanted} kernels, drawn by seed 7"
    assert [line.split(":")[0].strip() for line in lines] == ["attention", "conv"]


def test_the_seed_tells_the_sample(wanted: dict[str, list[KernelSpec]]) -> None:
    assert draw(wanted, 60, 1).kernels == draw(wanted, 60, 1).kernels
    assert draw(wanted, 60, 1).kernels != draw(wanted, 60, 2).kernels


def test_without_a_budget_everything_is_asked(wanted: dict[str, list[KernelSpec]]) -> None:
    for most in (0, 10**6):
        sample = draw(wanted, most, 3)
        assert sample.whole
        assert sample.kernels == wanted
        assert "seed" not in str(sample)


@pytest.mark.parametrize("case", attention.cases(), ids=lambda one: str(one.name))
def test_every_attention_kernel_is_asked_something(case: attention.Case) -> None:
    specs = case.specs(ARCH)
    assert any(one.schedule.pipeline == "loops" for one in specs)
    idle = [one.name for one in specs if next(case.problems(one), None) is None]
    assert idle == []
    assert len({one.schedule.pipeline for one in specs}) > 1 or case.first.dtype_q not in ("bf16", "fp16")
