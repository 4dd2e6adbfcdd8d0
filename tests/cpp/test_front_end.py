"""The C++ front end: its own tests, compiled and run on folders of kernels that Python exported."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.conv.conftest import CONV
from tests.conv.test_kernels import KERNELS
from tests.cpp import programs
from tilewright import ops
from tilewright.arch import runnable_host_archs

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

TESTS = programs.CPP / "tests"


def gemm_problems() -> list[Any]:
    plain = [tw.GemmProblem(m=8, n=8, k=8, layout=layout) for layout in ("rcr", "rrr", "crr", "ccr")]
    fused = (("Relu", 1), ("Gelu", 0), ("MultiDAdd", 2))
    packed = tw.GemmProblem(m=8, n=8, k=8, layout="rcr", preshuffled=True)
    rest = [tw.GemmProblem(m=8, n=8, k=8, layout="rcr", epilogue=name, num_d=count) for name, count in fused]
    return [*plain, *rest, packed]


def conv_problems() -> list[Any]:
    size, window = {2: (8, 8), 3: (8, 8, 8)}, {2: (3, 3), 3: (3, 3, 3)}
    variants = ("forward", "backward_data", "backward_weight")
    plain = [tw.ConvProblem(1, 8, 8, size[rank], window[rank], variant=name) for rank in (2, 3) for name in variants]
    fused = (("Relu", 1), ("MultiDAdd", 2))
    return plain + [tw.ConvProblem(1, 8, 8, (8, 8), (3, 3), epilogue=name, num_d=count) for name, count in fused]


def attention_problems() -> list[Any]:
    forms: tuple[dict[str, Any], ...] = ({}, {"window_right": 0}, {"return_lse": True}, {"bias": "alibi"})
    plain = [tw.AttentionProblem(1, 2, 16, 16, 32, **form) for form in forms]
    split = [tw.AttentionProblem(1, 2, 16, 16, 32, num_splits=2, return_lse=lse) for lse in (False, True)]
    return plain + [stage for one in split for stage in ops.op("attention").stages(one, host())]


def cache_problems() -> list[Any]:
    pages: dict[str, Any] = {"page_size": 16, "page_count": 8, "page_lookup": "table"}
    fp8: dict[str, Any] = {"dtype_q": "fp8_e4m3", "dtype_out": "fp32", "q_scale": "head"}
    appends: tuple[dict[str, Any], ...] = (
        {}, {"pages": "strided", **pages}, {"rotary": "half", "rotary_dim": 16, "rotary_q": True},
        {"dtype_kv": "fp8_e4m3", "kv_scales": "tensor"},
    )  # fmt: skip
    forms: tuple[dict[str, Any], ...] = (
        {"seqlens_k": True, "pages": "vectorised", **pages}, {**fp8, "kv_scales": "head"},
        {**fp8, "kv_scales": "block", "scale_block": 16},
    )  # fmt: skip
    appended = [tw.AttentionProblem(2, 2, 3, 48, 32, family="append", **form) for form in appends]
    return appended + [tw.AttentionProblem(2, 4, 5, 48, 32, heads_kv=2, **form) for form in forms]


def backward_problems() -> list[Any]:
    forms: tuple[dict[str, Any], ...] = (
        {}, {"window_right": 0}, {"dropout": True}, {"dlse": True, "dsink": True}
    )  # fmt: skip
    whole = [tw.AttentionBackwardProblem(1, 2, 16, 16, 32, **form) for form in forms]
    return [stage for one in whole for stage in ops.op("attention_backward").stages(one, host())]


def host() -> str:
    return runnable_host_archs()[0].name


def conv_kernels() -> tw.Registry:
    """Those of tests/conv/test_kernels.py, which are compiled for it anyway, and fallbacks of what is fused here."""
    fused = [one.signature for one in conv_problems() if one.num_d]
    return tw.Registry(KERNELS[0].arch, specs=[*KERNELS, *(CONV.fallback_spec(one, KERNELS[0].arch) for one in fused)])


PROBLEMS: dict[str, Callable[[], list[Any]]] = {
    "gemm": gemm_problems, "conv": conv_problems, "attention": attention_problems,
    "attention_cache": cache_problems, "attention_backward": backward_problems,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of a few kernels an op, exported when it is asked for."""
    place, known = tmp_path_factory.mktemp("kernels"), dict[str, Path]()

    def folder(op: str) -> Path:
        if op not in known:
            registry = conv_kernels() if op == "conv" else programs.registry_of(host(), PROBLEMS[op](), "tiny")
            known[op] = registry.export(place / op).parent
        return known[op]

    return folder


@pytest.mark.parametrize("name", ["json", "models"])
def test_parts_of_the_library(name: str, tmp_path: Path) -> None:
    programs.call(str(programs.of_sources(name, tmp_path)))


@pytest.mark.parametrize("op", PROBLEMS)
def test_kernels_run_beside_a_reference(op: str, folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(TESTS / f"test_{op}.cpp", tmp_path / f"test_{op}")
    assert " 0 failed" in programs.call(str(program), str(folders(op)))


def test_the_runtime(folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(TESTS / "test_runtime.cpp", tmp_path / "test_runtime")
    (tmp_path / "empty").mkdir()
    programs.call(str(program), str(folders("gemm")), str(tmp_path / "empty"))


def test_plans_that_are_kept(folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(TESTS / "test_plans.cpp", tmp_path / "test_plans")
    assert " 0 failed" in programs.call(str(program), str(folders("gemm")))


def test_sixteen_threads(folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(TESTS / "test_threads.cpp", tmp_path / "test_threads")
    assert " 0 failed" in programs.call(str(program), *(str(folders(op)) for op in ("gemm", "conv", "attention")))


def test_kernels_on_sixteen_threads(folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(TESTS / "test_shared_work.cpp", tmp_path / "test_shared_work")
    assert " 0 failed" in programs.call(str(program), *(str(folders(op)) for op in ("gemm", "conv", "attention")))


def test_the_benchmark_of_selection(folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(programs.ROOT / "benchmarks" / "cpp_selection.cpp", tmp_path / "cpp_selection")
    said = programs.call(str(program), str(folders("gemm")), "3")
    assert said.startswith("gemm")
    assert "plan kept" in said


def test_a_failed_check_fails_the_program(folders: Callable[[str], Path], tmp_path: Path) -> None:
    program = programs.program(TESTS / "test_attention.cpp", tmp_path / "test_attention")
    finished = subprocess.run([str(program), str(folders("gemm"))], capture_output=True, text=True, check=False)
    assert finished.returncode != 0  # an error is thrown: the folder has no kernels of attention


def test_exported_symbols_begin_with_tw(tmp_path: Path) -> None:
    elffile = pytest.importorskip("elftools.elf.elffile")
    with programs.runtime().open("rb") as file:
        symbols = elffile.ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        names = [one.name for one in symbols if one["st_shndx"] != "SHN_UNDEF" and one.name]
    assert len(names) > 15
    assert [name for name in names if not name.startswith("tw_")] == []
