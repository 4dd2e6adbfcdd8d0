"""The C++ examples: each compiled, run on the CPU, and right; one of them in `make test`, all among the proofs."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs
from tilewright import ops
from tilewright.arch import runnable_host_archs

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

EXAMPLES = programs.ROOT / "examples" / "cpp"
EXPORT = runpy.run_path(str(EXAMPLES / "export_kernels.py"))
NAMES: list[str] = EXPORT["examples"]()
QUICK = ("gemm/01_basic",)  # kernels of conv and attention take seconds to compile, and cpp/tests has them too
COUNTS = {"gemm": 7, "conv": 7, "attention": 29, "end_to_end": 1}


def kernels(folder: Path, *names: str) -> Path:
    programs.call(sys.executable, str(EXAMPLES / "export_kernels.py"), str(folder), "--examples", *names)
    return folder


def run(name: str, folder: Path, work: Path) -> None:
    program = programs.with_header(EXAMPLES / f"{name}.cpp", work / "example")
    said = programs.call(str(program), str(folder))
    assert said.endswith("all right\n"), said


def test_there_are_as_many_as_in_the_lists() -> None:
    counts = {op: sum(name.startswith(f"{op}/") for name in NAMES) for op in COUNTS}
    assert counts == COUNTS
    assert [name for name in EXPORT["MORE"] if name not in NAMES] == []
    index = (programs.ROOT / "examples" / "README.md").read_text()
    assert [name for name in NAMES if f"cpp/{name}.cpp" not in index] == []


def test_they_are_worth_reading_and_short() -> None:
    lines = {name: len((EXAMPLES / f"{name}.cpp").read_text().splitlines()) for name in NAMES}
    assert {name: count for name, count in lines.items() if not 30 <= count <= 80} == {}


# What a person may type that cannot work here: the rule and words of the answer, and the status.
MISTAKES = {
    ("kernels", "more"): ("[usage]", "[FOLDER] [--target TARGET]", 2),
    ("--target",): ("[usage]", "TARGET: cpu, cuda, hip or an arch", 2),
    ("--taget", "cuda"): ("[usage]", "[FOLDER] [--target TARGET]", 2),
    ("--target", "sm_90a"): ("[device-library]", "the CUDA driver cannot be loaded", 1),
    ("--target", "gfx942"): ("[device-library]", "the HIP runtime cannot be loaded", 1),
    ("none",): ("[registry-path]", "export_kernels.py writes it", 1),
    ("--target", "x86_64_v3"): ("[registry-path]", "kernels-x86_64_v3", 1),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_answered(words: tuple[str, ...], tmp_path: Path) -> None:
    rule, text, status = MISTAKES[words]
    program = programs.with_header(EXAMPLES / "gemm" / "01_basic.cpp", tmp_path / "example")
    nowhere = {"TILEWRIGHT_CUDA_LIBRARY": "/none/libcuda.so", "TILEWRIGHT_HIP_LIBRARY": "/none/libamdhip64.so"}
    done = subprocess.run(
        [str(program), *words], cwd=tmp_path, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert rule in done.stderr
    assert text in done.stderr
    assert "remedy: " in done.stderr


@pytest.mark.parametrize("name", QUICK)
def test_the_first(name: str, tmp_path: Path) -> None:
    run(name, kernels(tmp_path / "kernels", name), tmp_path)


@pytest.mark.proof
@pytest.mark.part(10)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK and not name.startswith("end")])
def test_every_example(name: str, tmp_path: Path) -> None:
    run(name, kernels(tmp_path / "kernels", name), tmp_path)


@pytest.mark.proof
def test_a_program_from_a_bundle(tmp_path: Path) -> None:
    """As its first lines say it is made and run."""
    build = (sys.executable, "-m", "tilewright", "bundle", "build", "--threads", "1,2", "--targets")
    problems, bundle = str(EXAMPLES / "end_to_end" / "problems.json"), str(tmp_path / "model.twb")
    programs.call(*build, runnable_host_archs()[0].name, "--problems", problems, "-o", bundle, "--strict")
    run("end_to_end/01_inference_from_bundle", Path(bundle), tmp_path)


@pytest.mark.parametrize("target", ["x86_64_v3", "sm_90a", "gfx942"])
def test_what_is_exported_has_the_chosen_kernels(target: str) -> None:
    """Not the first of a signature alone, of which none may serve the example's problem."""
    for problem in EXPORT["problems"]([]):
        op = ops.op(problem.op)
        for stage in op.stages(problem, target):
            exported = EXPORT["kernels_of"](op, stage, target)
            chosen = tw.Registry(target).select_stage(stage).spec
            assert chosen.digest in {spec.digest for spec in exported}
            assert len(exported) <= EXPORT["KERNELS"]


def test_wrong_numbers_fail_an_example(tmp_path: Path) -> None:
    source = (EXAMPLES / "gemm" / "01_basic.cpp").read_text().replace('check("y = x w\'", y,', 'check("y = x w\'", x,')
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "wrong.cpp").write_text(source.replace("../example.hpp", str(EXAMPLES / "example.hpp")))
    program = programs.program(tmp_path / "gemm" / "wrong.cpp", tmp_path / "wrong")
    with pytest.raises(AssertionError, match="WRONG"):
        programs.call(str(program), str(kernels(tmp_path / "kernels", "gemm/01_basic")))
