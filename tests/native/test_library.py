"""A selection library that is not there when it is first asked for, and comes later."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tilewright import GemmProblem, Registry, events, settings
from tilewright.backends.cpu.gemm import KERNELS
from tilewright.dispatch import looks
from tilewright.errors import CompileError, NoKernelError
from tilewright.native import library, one_kernel

PROBLEM = GemmProblem(37, 29, 61)


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    if library.library(KERNELS.native) is None:
        pytest.skip("no compiler builds the selection library")
    for name in ("_loaded", "_failed", "_wanted"):
        monkeypatch.setattr(library, name, {})
    one_kernel._known.cache_clear()  # what asked about single kernels before has the library still
    monkeypatch.setattr(library, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(looks, "SECONDS", 0.0)


def test_a_frozen_process_sees_a_library_that_another_one_built(tmp_path: Path) -> None:
    registry = Registry()
    with settings.override(cache_dir=tmp_path, measure=False, models=False, frozen=True):
        for _ in range(2):
            assert "selection library was not built" in registry.select(PROBLEM).reason
        with settings.override(frozen=False):
            library._build(KERNELS.native)  # as another process would: this one does not know
        assert "lowest estimate" in registry.select(PROBLEM).reason
    assert not library.any_missing()
    assert not library.why_missing()


def test_choices_made_without_a_library_are_forgotten_when_other_settings_built_it(tmp_path: Path) -> None:
    registry = Registry()
    with settings.override(cache_dir=tmp_path, measure=False, models=False, frozen=True):
        assert math.isinf(registry.select(PROBLEM).seconds)
    with settings.override(cache_dir=tmp_path, measure=False, models=False):
        chosen = registry.select(PROBLEM)
    with settings.override(cache_dir=tmp_path, measure=False, models=False, frozen=True):
        assert registry.select(PROBLEM).spec == chosen.spec


@pytest.mark.parametrize("error", [NoKernelError, CompileError])
def test_it_is_tried_again_unless_it_does_not_compile_and_missed_once(
    monkeypatch: pytest.MonkeyPatch, error: type[NoKernelError | CompileError]
) -> None:
    tries = []

    def build(_: object) -> library.Library:
        tries.append(error)
        raise error("it cannot be had", rule="frozen" if error is NoKernelError else "compile-failed")

    monkeypatch.setattr(library, "_build", build)
    with events.recorded() as seen:
        assert [library.library(KERNELS.native) for _ in range(3)] == [None] * 3
    assert len(tries) == (3 if error is NoKernelError else 1)
    assert len([event for event in seen if isinstance(event, events.Warned)]) == 1
