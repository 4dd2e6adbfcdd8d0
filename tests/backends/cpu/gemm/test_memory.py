"""No byte outside the operands is read or written, and nothing undefined is done on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.cpu.gemm import catalog, fenced_pages
from tests.backends.cpu.gemm.shapes import calls
from tests.built import Built, why_no_compiler, why_not_compiled
from tilewright import settings
from tilewright.arch import arch as facts_of
from tilewright.backends.base import backend
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem

HERE = Path(__file__).parent
KERNELS = tuple(catalog.core().values())


def _alone(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.backends.cpu.gemm.fenced_pages", *words],
        cwd=root,
        env=settings.child_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages with mprotect")
@pytest.mark.parametrize(
    "names", [list(catalog.core()), pytest.param([], marks=pytest.mark.proof)], ids=["core", "all"]
)
def test_operands_against_forbidden_pages(built: Built, pytestconfig: pytest.Config, names: list[str]) -> None:
    assert built[catalog.core()["packed"]]
    built.together(KERNELS if names else fenced_pages.every())
    assert _alone(pytestconfig.rootpath, "overrun").returncode < 0  # the fence works: killed by a signal
    ended = _alone(pytestconfig.rootpath, *names)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "stayed inside" in ended.stdout


# A sample of pipelines, levels and types; sanitized compiles are slow.
SAMPLE = (
    catalog.spec("packed", "x86_64_v4", ("fp32",) * 3, "rcr", split_k=2, epilogue="MultiDAdd", num_d=2),
    catalog.spec("packed", "x86_64_v4_vnni", ("int8", "int8", "int8"), "crr", block=3, epilogue="Relu"),
    catalog.spec("direct", "x86_64_v4_bf16", ("bf16", "bf16", "bf16"), "rrr", block=2),
    catalog.spec("packed", "x86_64_v3", ("fp16", "fp16", "fp32"), "rrr", epilogue="MultiDMultiply", num_d=1),
    catalog.spec("stream", "x86_64_v3", ("int8", "int8", "int32"), "rcr"),
    catalog.spec("gemv", "generic", ("fp16", "fp16", "fp16"), "ccr"),
    catalog.spec("preshuffle", "generic", ("int8", "int8", "fp32"), "rrr", block=3, epilogue="Gelu"),
    catalog.spec("loops", "generic", ("fp8_e5m2", "fp8_e4m3", "bf16"), "rrr"),
)
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g0", "-O1", "-std=c++17")


def _line(index: int, p: GemmProblem, threads: int) -> str:
    by_rows_a, by_rows_b = p.layout[0] == "r", p.layout[1] == "r"
    matrices = (
        (*((p.m, p.k) if by_rows_a else (p.k, p.m)), p.a_stride, DTYPES[p.dtype_a].bytes),
        (*((p.k, p.n) if by_rows_b else (p.n, p.k)), p.b_stride, DTYPES[p.dtype_b].bytes),
        (p.m, p.n, p.c_stride, DTYPES[p.dtype_c].bytes),
        (p.m, p.n, p.n, DTYPES[p.dtype_d].bytes),
    )
    head = (index, p.m, p.n, p.k, p.batch, int(p.beta), p.num_d, min(threads, 3))
    return " ".join(str(one) for one in (*head, *(value for matrix in matrices for value in matrix)))


def _input(linked: list[KernelSpec]) -> str:
    """The calls of the kernels this CPU runs."""
    lines = []
    for index, spec in enumerate(linked):
        if spec.arch not in catalog.runnable():
            continue
        for call in calls(spec, seed=60 + index):
            p = call.problem
            # The program's batches are dense, and it has no broadcast: strides and sizes are the point here.
            if not (p.broadcast_a or p.broadcast_b):
                lines.append(_line(index, p, 3 if call.threads > 1 else 1))
    return "\n".join(lines) + "\n"


def _compile(words: list[str]) -> None:
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[:3000]


@pytest.mark.proof
@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers as GCC and Clang have them on Linux")
def test_under_address_and_undefined_sanitizers(tmp_path: Path) -> None:
    why = why_no_compiler()
    if why:
        pytest.skip(why)
    toolchain = find_toolchain()
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() { return 0; }")
    tried = subprocess.run(
        [*toolchain.driver, *SANITIZE, "-o", str(tmp_path / "probe"), str(probe)], capture_output=True, check=False
    )
    if tried.returncode or toolchain.kind == "zig":  # which takes the flag, and has no address sanitizer
        pytest.skip("this compiler has no sanitizer libraries")
    include = [f"-I{one}" for one in toolchain.include_dirs("gemm")]
    objects = []
    linked = [spec for spec in SAMPLE if not why_not_compiled(spec.arch)]
    for index, spec in enumerate(linked):
        text = backend("cpu").render(spec)
        source = tmp_path / f"k{index}.cpp"
        source.write_text(text.text, encoding="utf-8")
        objects.append(str(source.with_suffix(".o")))
        flags = facts_of(spec.arch).compile_flags
        _compile([*toolchain.driver, *SANITIZE, *flags, *include, "-c", "-o", objects[-1], str(source)])
    program = tmp_path / "program"
    _compile([*toolchain.driver, *SANITIZE, *include, "-o", str(program), str(HERE / "sanitized.cpp"), *objects])

    def run(given: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(program), *words], input=given, capture_output=True, text=True, check=False, timeout=600
        )

    ended = run(_input(linked))
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[:3000]
    assert ended.stdout == f"{_input(linked).count(chr(10))} calls, {len(linked)} kernels\n"
    # The net catches: the generic kernel on an A that is one element short.
    p = GemmProblem(m=3, n=4, k=5, dtype_a="fp8_e5m2", dtype_b="fp8_e4m3", dtype_c="bf16")
    caught = run(_line(len(linked) - 1, p, 1) + "\n", "short")
    assert caught.returncode != 0
    assert "heap-buffer-overflow" in caught.stderr
