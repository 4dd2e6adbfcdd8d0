"""The C++ tests under sanitizers: memory and undefined behaviour of all of them, races of those with 16 threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_devices import LIBRARIES, kernels, stub
from tests.cpp.test_front_end import PROBLEMS, folders, host
from tests.cpp.test_same_choice import line
from tests.cpp.test_same_model import trained_for
from tilewright import settings
from tilewright.bundle.build import Wish, build
from tilewright.dispatch import learned, model_files
from tilewright.dispatch.records import machine

__all__ = ["folders"]  # a fixture

pytestmark = [
    pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here"),
    pytest.mark.proof,
]

TESTS = programs.CPP / "tests"


def compiled(names: Iterable[str], sanitizer: str, folder: Path) -> None:
    """The programs; a compiler without the sanitizer is a reason to skip."""
    for name in names:
        try:
            programs.program(TESTS / f"{name}.cpp", folder / name, f"-fsanitize={sanitizer}", "-g")
        except AssertionError as error:
            if "san" not in str(error):
                raise
            pytest.skip(f"this compiler has no {sanitizer} sanitizer")


def with_a_model(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Kernels of GEMM with a learned model that knows this machine."""
    model = trained_for("gemm-zen4-avx2", {"model": machine(host())["model"]}, targets=(host(),))
    patch.setattr(model_files, "at_hand_for", lambda *_: (model,))
    patch.setattr(learned, "at_hand", lambda: True)
    registry = programs.registry_of(host(), [tw.GemmProblem(m=8, n=8, k=8), tw.GemmProblem(8, 8, 8, layout="rcr")])
    with settings.override(models=True):
        path = registry.export(folder)
    assert "twtrees" in path.read_text()
    return path.parent


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_kernels_plans_and_models(
    sanitizer: str, folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(("test_runtime", "test_plans", *(f"test_{op}" for op in PROBLEMS)), sanitizer, tmp_path)
    (tmp_path / "empty").mkdir()
    programs.call(str(tmp_path / "test_runtime"), str(folders("gemm")), str(tmp_path / "empty"))
    programs.call(str(tmp_path / "test_plans"), str(folders("gemm")))
    for op in PROBLEMS:
        programs.call(str(tmp_path / f"test_{op}"), str(folders(op)))
    programs.call(str(tmp_path / "test_plans"), str(with_a_model(tmp_path / "learned", monkeypatch)))


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize(("backend", "target"), [("cuda", "sm_90a"), ("hip", "gfx942")])
def test_devices(sanitizer: str, backend: str, target: str, tmp_path: Path) -> None:
    compiled(("test_device",), sanitizer, tmp_path)
    stub(backend, tmp_path / LIBRARIES[backend])
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "ASAN_OPTIONS": "detect_leaks=0"}  # stubs stay loaded
    said = programs.call(str(tmp_path / "test_device"), "run", backend, str(kernels(tmp_path, target)), env=env)
    assert " 0 failed" in said


def test_bundles_and_choices(tmp_path: Path) -> None:
    compiled(("test_bundle", "choose"), "address,undefined", tmp_path)
    asked = [tw.GemmProblem(m=m, n=64, k=64) for m in (1, 64, 100)]
    build(tmp_path / "model.twb", Wish([host()], asked), jobs=1)
    assert programs.call(str(tmp_path / "test_bundle"), str(tmp_path / "model.twb")).endswith(" files\n")
    words = (str(tmp_path / "choose"), str(tmp_path / "model.twb"), "2", "1048576")
    said = programs.call(*words, input="\n".join(map(line, asked)) + "\n").splitlines()
    assert [answer.split()[1] for answer in said] == ["heuristic"] * 3
