"""The C++ tests under sanitizers: memory and undefined behaviour of all of them, races of those with 16 threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs, test_copies, test_strict
from tests.cpp.test_devices import LIBRARIES, convolutions, kernels, stub
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
MEMORY, RACES = "address,undefined", "thread"
FLAGS = ("-O0", "-g1", "-fno-omit-frame-pointer")  # compiling is most of the time
# What a program says is not all: one that goes on after undefined behaviour ends with success otherwise.
ENVIRONMENT = {"UBSAN_OPTIONS": "halt_on_error=1", "TSAN_OPTIONS": "halt_on_error=1"}
VARIANTS = ("forward", "backward_data", "backward_weight")
GPUS = [("cuda", "sm_90a"), ("hip", "gfx942")]


def compiled(source: Path, sanitizer: str, goal: Path) -> str:
    """A program; a compiler without the sanitizer is a reason to skip."""
    try:
        return str(programs.program(source, goal, f"-fsanitize={sanitizer}", *FLAGS))
    except AssertionError as error:
        if "cannot find" not in str(error) and "unsupported" not in str(error):
            raise
        pytest.skip(f"this compiler has no {sanitizer} sanitizer")


def sanitized(name: str, sanitizer: str, folder: Path) -> str:
    return compiled(TESTS / f"{name}.cpp", sanitizer, folder / name)


def run(*words: str, **more: str) -> str:
    return programs.call(*words, env={**os.environ, **ENVIRONMENT, **more})


# -- that they can fail ----------------------------------------------------------------------------------------------

WRONG = {
    MEMORY: (
        "int main(int count, char **) { int *at = new int[2]; at[1 + count] = 1; return at[0]; }",
        "heap-buffer-overflow",
    ),
    RACES: (
        "#include <thread>\nint shared;\n"
        "int main() { std::thread one([] { ++shared; }); ++shared; one.join(); return 0; }",
        "data race",
    ),
}


@pytest.mark.parametrize("sanitizer", WRONG)
def test_they_find_what_is_wrong(sanitizer: str, tmp_path: Path) -> None:
    source, said = WRONG[sanitizer]
    (tmp_path / "wrong.cpp").write_text(source)
    program = str(tmp_path / "wrong")
    try:  # without libtilewright: this says in a second what the compiler has
        programs.call(*programs.compiler(), f"-fsanitize={sanitizer}", "-pthread", f"{program}.cpp", "-o", program)
    except AssertionError:
        pytest.skip(f"this compiler has no {sanitizer} sanitizer")
    with pytest.raises(AssertionError, match=said):
        run(program)


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["json", "models"])
def test_memory_of_parts(name: str, tmp_path: Path) -> None:
    compiled(TESTS / "test_bundle.cpp", MEMORY, tmp_path / "skips_without_one")
    run(str(programs.of_sources(name, tmp_path, f"-fsanitize={MEMORY}", *FLAGS)))


def test_memory_of_copies(tmp_path: Path) -> None:
    folder = tw.Registry(test_copies.TARGET, specs=list(test_copies.kernels())).export(tmp_path / "kernels").parent
    program = sanitized("test_copies", MEMORY, tmp_path)
    assert " 0 failed" in run(program, str(folder))
    assert " 0 failed" in run(program, str(test_copies.pinned(tmp_path)), "locked")


def test_memory_of_refusals(tmp_path: Path) -> None:
    assert " 0 failed" in run(sanitized("test_strict", MEMORY, tmp_path), test_strict.exported(tmp_path))


@pytest.mark.parametrize(("backend", "target"), GPUS)
def test_memory_of_convolutions_in_copies(backend: str, target: str, tmp_path: Path) -> None:
    program = sanitized("test_device_conv", MEMORY, tmp_path)
    stub(backend, tmp_path / LIBRARIES[backend])
    assert " 0 failed" in run(program, backend, str(convolutions(tmp_path, target)), **on_stubs(tmp_path))


@pytest.mark.parametrize("op", PROBLEMS)
def test_memory_of_kernels(op: str, folders: Callable[[str], Path], tmp_path: Path) -> None:
    assert " 0 failed" in run(sanitized(f"test_{op}", MEMORY, tmp_path), str(folders(op)))


def test_memory_of_registries_and_plans(folders: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = run(sanitized("test_runtime", MEMORY, tmp_path), str(folders("gemm")), str(tmp_path / "empty"))
    assert " 0 failed" in said
    assert " 0 failed" in run(sanitized("test_plans", MEMORY, tmp_path), str(folders("gemm")))


def test_memory_of_bundles_and_choices(tmp_path: Path) -> None:
    asked = [tw.GemmProblem(m=m, n=64, k=64) for m in (1, 64, 100)]
    build(tmp_path / "model.twb", Wish([host()], asked), jobs=1)
    said = run(sanitized("test_bundle", MEMORY, tmp_path), str(tmp_path / "model.twb"))
    assert said.endswith(" files\n")
    words = (sanitized("choose", MEMORY, tmp_path), str(tmp_path / "model.twb"), "2", "1048576")
    answers = programs.call(*words, input="\n".join(map(line, asked)) + "\n").splitlines()
    assert [answer.split()[1] for answer in answers] == ["heuristic"] * 3


@pytest.mark.parametrize(("backend", "target"), GPUS)
def test_memory_of_devices(backend: str, target: str, tmp_path: Path) -> None:
    devices(MEMORY, backend, target, tmp_path)


# -- races -----------------------------------------------------------------------------------------------------------


def test_races_of_registries_dispatchers_and_plans(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen threads, of every op; those of GEMM once more with a learned model that chooses."""
    program = sanitized("test_threads", RACES, tmp_path)
    others = str(folders("conv")), str(folders("attention"))
    assert " 0 failed" in run(program, str(folders("gemm")), *others)
    assert " 0 failed" in run(program, str(with_a_model(tmp_path / "learned", monkeypatch)), *others)


def test_races_inside_of_kernels(tmp_path: Path) -> None:
    """Kernels that are compiled for the sanitizer too, on teams of sixteen: what their threads share is looked at."""
    program = sanitized("test_shared_work", RACES, tmp_path)
    problems: dict[str, list[Any]] = {
        "gemm": [tw.GemmProblem(m=8, n=8, k=8, layout="rcr")],
        "conv": [tw.ConvProblem(1, 32, 32, (8, 8), (3, 3), variant=name) for name in VARIANTS],
        "attention": [tw.AttentionProblem(1, 2, 16, 16, 32)],
    }
    places = []
    with settings.override(cxxflags=f"-fsanitize={RACES} -g1"):
        for op, some in problems.items():
            specs = programs.registry_of(host(), some).specs()
            each = {(spec.signature, spec.schedule.pipeline): spec for spec in specs}  # one a family
            places.append(tw.Registry(host(), specs=list(each.values())).export(tmp_path / op).parent)
    libraries = [file for place in places for file in place.glob("kernels/*.so")]
    assert all(b"__tsan_" in file.read_bytes() for file in libraries)
    assert " 0 failed" in run(program, *map(str, places))


def test_races_of_the_host_s_team(tmp_path: Path) -> None:
    """The team that Python's calls run on, and how work is shared out over it."""
    cpu = programs.ROOT / "src" / "tilewright" / "backends" / "cpu"
    sources = (programs.ROOT / "tests" / "runtime" / "team_races.cpp", cpu / "host" / "team.cpp")
    flags = ("-std=c++17", f"-fsanitize={RACES}", *FLAGS, *programs.INCLUDES, f"-I{cpu / 'include'}")
    compiled(programs.CPP / "tests" / "test_bundle.cpp", RACES, tmp_path / "skips_without_one")
    program = programs.compiled(sources, flags, "team_races", "-pthread", "-ldl")
    assert run(str(program)).startswith("0 items")


@pytest.mark.parametrize(("backend", "target"), GPUS)
def test_races_of_devices(backend: str, target: str, tmp_path: Path) -> None:
    devices(RACES, backend, target, tmp_path)


def devices(sanitizer: str, backend: str, target: str, folder: Path) -> None:
    program = sanitized("test_device", sanitizer, folder)
    stub(backend, folder / LIBRARIES[backend])
    assert " 0 failed" in run(program, "run", backend, str(kernels(folder, target)), **on_stubs(folder))


def on_stubs(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(folder), "ASAN_OPTIONS": "detect_leaks=0"}  # stubs stay loaded


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
