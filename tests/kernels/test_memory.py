"""No byte outside the operands is read or written, and nothing undefined is done on the way."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import catalog
from tests.kernels.shapes import calls
from tilewright import settings
from tilewright.arch import arch as facts_of
from tilewright.backends.base import backend
from tilewright.backends.cpu.toolchain import CpuToolchain, candidates, find_toolchain, identify
from tilewright.dtypes import DTYPES
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import cpu
from tilewright.ops.gemm.problem import GemmProblem

HERE = Path(__file__).parent


def _alone(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.kernels.fenced_pages", *words],
        cwd=root,
        env=settings.child_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="forbids pages with mprotect")
def test_operands_against_forbidden_pages(pytestconfig: pytest.Config) -> None:
    assert _alone(pytestconfig.rootpath, "overrun").returncode < 0  # the fence works: killed by a signal
    ended = _alone(pytestconfig.rootpath)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "stayed inside" in ended.stdout


# A sample of pipelines, levels and types; sanitized compiles are slow.
SAMPLE = (
    catalog.spec("packed", catalog.best(), ("fp32",) * 3, "rcr", split_k=2, epilogue="MultiDAdd", num_d=2),
    catalog.spec("packed", catalog.best(), ("int8", "int8", "int8"), "crr", block=3, epilogue="Relu"),
    catalog.spec("direct", catalog.runnable()[-1], ("bf16", "bf16", "bf16"), "rrr", block=2),
    catalog.spec("stream", catalog.best(), ("int8", "int8", "int32"), "rcr"),
    catalog.spec("gemv", catalog.runnable()[0], ("fp16", "fp16", "fp16"), "ccr"),
    catalog.spec("preshuffle", catalog.runnable()[0], ("int8", "int8", "fp32"), "rrr", block=3, epilogue="Gelu"),
    catalog.spec("loops", catalog.runnable()[0], ("fp8_e5m2", "fp8_e4m3", "bf16"), "rrr"),
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


def _input() -> str:
    lines = []
    for index, spec in enumerate(SAMPLE):
        for call in calls(spec, seed=60 + index):
            p = call.problem
            # The program's batches are dense, and it has no broadcast: strides and sizes are the point here.
            if not (p.broadcast_a or p.broadcast_b):
                lines.append(_line(index, p, 3 if call.threads > 1 else 1))
    return "\n".join(lines) + "\n"


def _compile(words: list[str]) -> None:
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[:3000]


@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers as GCC and Clang have them on Linux")
def test_under_address_and_undefined_sanitizers(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() { return 0; }")
    tried = subprocess.run(
        [*toolchain.driver, *SANITIZE, "-o", str(tmp_path / "probe"), str(probe)], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip("this compiler has no sanitizer libraries")
    include = [f"-I{one}" for one in toolchain.include_dirs()]
    objects = []
    for index, spec in enumerate(SAMPLE):
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

    ended = run(_input())
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[:3000]
    assert ended.stdout == f"{_input().count(chr(10))} calls, {len(SAMPLE)} kernels\n"
    # The net catches: the generic kernel on an A that is one element short.
    p = GemmProblem(m=3, n=4, k=5, dtype_a="fp8_e5m2", dtype_b="fp8_e4m3", dtype_c="bf16")
    caught = run(_line(len(SAMPLE) - 1, p, 1) + "\n", "short")
    assert caught.returncode != 0
    assert "heap-buffer-overflow" in caught.stderr


def _others() -> list[CpuToolchain]:
    """Compilers of this machine beside the one the suite builds with."""
    found = {find_toolchain().identity.digest: find_toolchain()}
    drivers = candidates()
    if importlib.util.find_spec("ziglang") is None:
        drivers = [one for one in drivers if "zig" not in one[0]]
    for driver in drivers:
        try:
            other = identify(driver)
        except ToolchainError:
            continue
        found.setdefault(other.identity.digest, other)
    return list(found.values())[1:]


@pytest.mark.parametrize("pipeline", cpu.PIPELINES)
def test_other_compilers_have_nothing_to_say(pipeline: str, tmp_path: Path) -> None:
    others = _others()
    if not others:
        pytest.skip("this machine has one C++ compiler")
    specs: list[KernelSpec] = [
        catalog.spec(pipeline, "generic", ("fp16", "fp16", "bf16"), "rrr"),
        catalog.spec(pipeline, "x86_64_v4_bf16", ("bf16", "bf16", "fp32"), "rrr"),
        catalog.spec(pipeline, "x86_64_v3", ("int8", "int8", "int32"), "rrr"),
    ]
    for toolchain in others:
        for spec in specs:
            machines = facts_of(spec.arch).machines
            if machines and toolchain.machine not in machines:
                continue
            source = tmp_path / f"{spec.name}.cpp"
            source.write_text(backend("cpu").render(spec).text, encoding="utf-8")
            command = [*toolchain.command(source, tmp_path / "kernel.so", spec.arch), "-Werror"]
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
                env=settings.child_environment(dict(toolchain.environment(tmp_path))),
            )
            assert ended.returncode == 0, ended.stderr[:2000]
