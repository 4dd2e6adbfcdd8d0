"""The short `cuda_runtime.h` that nvcc reads, not NVIDIA's: the same machine code, a way out for other sources."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tilewright import ops
from tilewright.backends.base import backend
from tilewright.backends.cuda import toolchain
from tilewright.backends.cuda.toolchain import CudaToolchain
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec

SEED, ARCHS = 4017, ("sm_80", "sm_90a")
OPS = ("gemm", "conv", "attention", "attention_backward")
OWN = f"-I{toolchain._RUNTIME}"


@pytest.fixture(scope="module")
def tools() -> CudaToolchain:
    try:
        tools = toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}; {error.remedy}")
    if tools.identity.kind != "nvcc":
        pytest.skip("the header is for nvcc")
    return tools


def one_of_each_family(op: str, arch: str) -> list[KernelSpec]:
    of_op, rng = ops.op(op), random.Random(f"{SEED} {op} {arch}")
    by_family: dict[str, list[KernelSpec]] = {}
    for spec in of_op.proposals("default", arch):
        if not of_op.check(spec):
            by_family.setdefault(spec.schedule.pipeline, []).append(spec)
    return [rng.choice(by_family[family]) for family in sorted(by_family)]


def compiled(tools: CudaToolchain, spec: KernelSpec, folder: Path, with_ours: bool) -> bytes:
    source, output = folder / "kernel.cu", folder / "kernel.cubin"
    source.write_text(backend("cuda").render(spec).text)
    command = tools.cubin_command(source, output, spec.arch, op=spec.op)
    assert OWN in command
    words = [word for word in command if with_ours or word != OWN]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{spec.name}: {done.stderr}"
    return output.read_bytes()


@pytest.mark.tools
@pytest.mark.proof
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", OPS)
def test_every_family_has_the_same_machine_code(tools: CudaToolchain, op: str, arch: str, tmp_path: Path) -> None:
    differ = [
        spec.name
        for spec in one_of_each_family(op, arch)
        if compiled(tools, spec, tmp_path, True) != compiled(tools, spec, tmp_path, False)
    ]
    assert differ == []


@pytest.mark.tools
def test_a_source_that_needs_more_has_nvidias_header(tools: CudaToolchain, tmp_path: Path) -> None:
    """A family from elsewhere may use all of CUDA; what is wrong in it is said once."""
    source = tmp_path / "other.cu"
    source.write_text(
        "#ifdef __CUDACC__\n#include <cuda_bf16.h>\n"
        'extern "C" __global__ void other(__nv_bfloat16 *x) { *x = __float2bfloat16(float(__popc(threadIdx.x))); }\n'
        "#endif\n"
    )
    command = tools.command(source, tmp_path / "other.so", "sm_90a")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "other.so").exists()
    source.write_text('#ifdef __CUDACC__\nextern "C" __global__ void other() { nothing(); }\n#endif\n')
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert done.stderr.count('"nothing" is undefined') == 1


def test_the_header_is_a_part_of_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No source names it, so the digest that follows includes does not see it."""
    before = toolchain._runtime_digest()
    text = (toolchain._RUNTIME / "cuda_runtime.h").read_text()
    (tmp_path / "cuda_runtime.h").write_text(f"{text}// changed\n")
    monkeypatch.setattr(toolchain, "_RUNTIME", tmp_path)
    toolchain._runtime_digest.cache_clear()
    try:
        assert toolchain._runtime_digest() != before
    finally:
        toolchain._runtime_digest.cache_clear()
