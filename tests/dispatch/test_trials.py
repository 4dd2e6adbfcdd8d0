"""Without a selection library few kernels are tried: built ones first, then some compiles, then the fallback."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.dispatch import built as store
from tilewright.dispatch import kernels, trials
from tilewright.errors import NoKernelError, ProblemError
from tilewright.native import judge, one_kernel
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import Kernel

GEMM = ops.op("gemm")
A, B = np.full((9, 3), 2, np.float32), np.ones((3, 9), np.float32)
SIGNATURE = tw.GemmProblem(m=9, n=9, k=3).signature


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "library", lambda kernels: None)
    one_kernel._known.cache_clear()


def many(registry: tw.Registry, count: int = 8) -> list[KernelSpec]:
    """So many kernels of a signature, none of them the fallback."""
    fallback = GEMM.fallback_spec(SIGNATURE, registry.target)
    specs = (spec for spec in GEMM.proposals("full", registry.target) if spec.signature == SIGNATURE)
    legal = [spec for spec in dict.fromkeys(specs) if spec != fallback and not GEMM.check(spec)]
    assert len(legal) >= count
    return legal[:count]


def ask(monkeypatch: pytest.MonkeyPatch, *, built: Collection[KernelSpec] = (), serving: bool = True) -> list[str]:
    """Let every kernel refuse but the fallback, if it is `serving`; the names of those asked, in their order."""
    load = kernels.kernel
    asked: list[str] = []

    def kernel(spec: KernelSpec) -> Kernel:
        asked.append(spec.name)
        if serving and spec.schedule.pipeline == "loops":
            return load(spec)
        raise ProblemError(f"{spec.name} refuses: odd sizes", rule="kernel-check", value=spec.name)

    monkeypatch.setattr(kernels, "kernel", kernel)
    monkeypatch.setattr(store, "is_built", lambda spec: spec in built)
    return asked


def test_few_kernels_are_compiled_and_then_the_fallback_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = tw.Registry()
    registry.add(many(registry))
    asked = ask(monkeypatch)
    np.testing.assert_array_equal(registry.run("gemm", A, B), 6)
    assert len(asked) == len(set(asked)) == 1 + trials.MOST_COMPILES + 1
    assert asked[-1] == GEMM.fallback_spec(SIGNATURE, registry.target).name


def test_built_kernels_are_asked_before_any_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = tw.Registry()
    specs = many(registry)
    registry.add(specs)
    first = registry.select(tw.GemmProblem(m=9, n=9, k=3)).spec
    built = [spec for spec in specs if spec != first][-2:]
    asked = ask(monkeypatch, built=built)
    registry.run("gemm", A, B)
    assert asked[0] == first.name
    assert set(asked[1:3]) == {spec.name for spec in built}
    assert len(asked) == 3 + trials.MOST_COMPILES + 1


def test_the_error_says_what_was_tried_and_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = tw.Registry()
    registry.add(many(registry))
    asked = ask(monkeypatch, serving=False)
    with pytest.raises(NoKernelError, match="selection library") as caught:
        registry.run("gemm", A, B)
    assert caught.value.value == tuple(asked)
    assert all(name in caught.value.message for name in asked)
    assert "C++ compiler" in caught.value.remedy


def test_other_errors_on_the_way_are_told_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = tw.Registry()
    registry.add(many(registry))
    asked: list[str] = []

    def kernel(spec: KernelSpec) -> Kernel:
        asked.append(spec.name)
        if len(asked) == 1:
            raise ProblemError("no", rule="kernel-check", value=spec.name)
        raise NoKernelError("it would have to be compiled", rule="frozen", value=spec.name)

    monkeypatch.setattr(kernels, "kernel", kernel)
    with pytest.raises(NoKernelError, match="would have to be compiled"):
        registry.run("gemm", A, B)
    assert len(asked) == 2


def test_with_a_library_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is then a contradiction between selection and kernel, which must not be hidden."""
    monkeypatch.undo()
    one_kernel._known.cache_clear()
    registry = tw.Registry()
    registry.add(many(registry))
    if registry._judges.judge_for(GEMM, SIGNATURE, *registry._candidates(GEMM, SIGNATURE)) is None:
        pytest.skip("no compiler builds the selection library")
    asked = ask(monkeypatch, serving=False)
    with pytest.raises(ProblemError, match="odd sizes"):
        registry.run("gemm", A, B)
    assert len(asked) == 1
