"""Kernels that a process has loaded are known by everything that changes what is built."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import ops, settings
from tilewright.backends.base import backend, backend_names
from tilewright.build import Builder
from tilewright.dispatch import kernels
from tilewright.errors import TilewrightError
from tilewright.runtime import loader

# Options that builds read and that change no kernel: how many compilers run, whether any may, where what is told goes,
# how large the store may be, which libraries load kernels, and which CPU this is taken for (an arch is in the spec).
OF_NO_KERNEL = {
    "jobs", "frozen", "events", "cache_max_bytes", "threads", "target", "host_level", "objdump", "hip_library",
    "cuda_library",
}  # fmt: skip


@pytest.fixture
def spec() -> tw.KernelSpec:
    return ops.op("gemm").fallback_spec(tw.GemmProblem(1, 1, 1).signature, "generic")


def other(name: str, value: Any) -> Any:
    """Another value of an option."""
    if name == "cuda_compiler":
        return "nvrtc"
    return value / "other" if isinstance(value, Path) else f"{value}other"


def test_every_toolchain_setting_is_another_kernel(spec: tw.KernelSpec) -> None:
    usual = kernels._key(spec)
    for name in ("cxx", "cxxflags", "nvcc", "nvrtc", "cuda_compiler", "hipcc", "rocm_path", "ck_tile",
                 "ck_tile_profile", "cache_dir"):  # fmt: skip
        with settings.override(**{name: other(name, getattr(settings.current(), name))}):
            assert kernels._key(spec) != usual, name
        assert kernels._key(spec) == usual
    with settings.override(threads=3, strict=True, models=not settings.current().models):
        assert kernels._key(spec) == usual


class Watched:
    """Settings that note which options are read."""

    def __init__(self, real: settings.Settings) -> None:
        self.__dict__.update(real=real, read=set())

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.real, name)


def test_what_a_toolchain_is_found_by_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new option that a backend reads to find its compiler must say that it changes what is built."""
    watched = Watched(settings.current())
    monkeypatch.setattr(settings, "current", lambda: watched)
    for name in backend_names():
        try:
            toolchain = backend(name).toolchain()
            toolchain.identity, toolchain.flags  # noqa: B018  they may read more
        except (TilewrightError, AttributeError):
            continue  # no such compiler here; what was read until then is known
    assert {"cxx", "nvcc", "cuda_compiler", "hipcc", "rocm_path"} <= watched.read
    known = {field.name for field in dataclasses.fields(settings.Settings)}
    assert watched.read & known <= {*settings._BUILDS, *OF_NO_KERNEL}


@pytest.mark.usefixtures("needs_compiler")
def test_a_library_that_is_adopted_serves_at_once(spec: tw.KernelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_adopted", {})
    monkeypatch.setattr(kernels, "_taken", (None, {}))
    first = kernels.kernel(spec)
    assert kernels.kernel(spec) is first
    other_one = loader.load_kernel(first.library_path, spec)
    kernels.adopt([other_one])
    assert kernels.kernel(spec) is other_one


@pytest.mark.usefixtures("needs_compiler")
def test_kernels_of_other_settings_are_others(spec: tw.KernelSpec) -> None:
    first = kernels.kernel(spec)
    with settings.override(cxxflags="-DTILEWRIGHT_OTHER"):
        assert kernels.kernel(spec) is not first
    assert kernels.kernel(spec) is first


@pytest.mark.usefixtures("needs_compiler")
def test_the_kernels_of_a_plan_are_asked_for_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two that are not built are compiled at once, not one after the other; what is loaded is asked for no more."""
    op = ops.op("gemm")
    specs = [op.fallback_spec(tw.GemmProblem(1, 1, 1, dtype).signature, "generic") for dtype in ("fp32", "bf16")]
    asked: list[list[str]] = []
    build_many = Builder.build_many

    def watched(builder: Any, wanted: Any, **keywords: Any) -> Any:
        wanted = list(wanted)
        asked.append([spec.digest for spec in wanted])
        return build_many(builder, wanted, **keywords)

    monkeypatch.setattr(Builder, "build_many", watched)
    with settings.override(cache_dir=tmp_path):
        loaded = kernels.together(specs)
        assert asked == [[spec.digest for spec in specs]]
        assert [kernel.spec for kernel in loaded] == specs
        assert kernels.together(specs) == loaded
    assert len(asked) == 1
