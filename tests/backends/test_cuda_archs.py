"""Archs that are nothing but data: kernels of every op compile for them, keep no register in memory, and carry PTX."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.test_arch_files import invented
from tilewright import ops, settings
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cuda import toolchain
from tilewright.errors import ToolchainError
from tilewright.inspect import demand_promises
from tilewright.ops import KernelSpec

pytestmark = pytest.mark.tools  # a CUDA compiler

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_100", "sm_120", "gpu188")
PIPELINES = (("gemm", "multistage"), ("conv", "gather"), ("conv", "depthwise"), ("attention", "mma"))
AXES = {
    "gemm": {"datatypes": ("bf16",)},
    "conv": {},
    "attention": {"heads": ("128",)},
    "attention_backward": {"heads": ("128",)},
}

SMALL = invented(includes=[], scratch_bytes=49152)


@pytest.fixture(autouse=True)
def invented_arch(tmp_path: Path) -> Iterator[None]:
    path = tmp_path / "archs.json"
    path.write_text(json.dumps({"schema": 1, "archs": {"gpu188": invented(), "gpu48": SMALL}}), encoding="utf-8")
    with settings.override(arch_files=str(path)):
        yield


def kernels(op: str, pipeline: str, target: str) -> list[KernelSpec]:
    """Of the default pool, those that take least of the shared memory first."""
    every = [spec for spec in ops.op(op).proposals("default", target, **AXES[op]) if not ops.op(op).check(spec)]
    found = [spec for spec in every if spec.schedule.pipeline == pipeline]
    return sorted(found, key=lambda spec: backend("cuda").promises(spec).dynamic_shared_bytes)


def kernel(op: str, pipeline: str, target: str) -> KernelSpec:
    return kernels(op, pipeline, target)[0]


def compiled(spec: KernelSpec, folder: Path) -> Path:
    try:
        tools = toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}; {error.remedy}")
    source, output = folder / f"{spec.name}.cu", folder / f"{spec.name}.cubin"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    command = tools.cubin_command(source, output, spec.arch, op=spec.op)
    done = subprocess.run(command, capture_output=True, text=True, env=settings.child_environment(), check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.sampled(7)  # every arch, and every pipeline
@pytest.mark.parametrize("target", ARCHS)
@pytest.mark.parametrize(("op", "pipeline"), PIPELINES)
def test_kernels_compile_without_spills(op: str, pipeline: str, target: str, tmp_path: Path) -> None:
    demand_fit(kernel(op, pipeline, target), target, tmp_path)


@pytest.mark.parametrize(("op", "pipeline"), [one for one in PIPELINES if one[1] != "depthwise"])
def test_the_largest_kernels_of_an_invented_arch_fit_it(op: str, pipeline: str, tmp_path: Path) -> None:
    every = kernels(op, pipeline, "gpu188")
    most = max(backend("cuda").promises(spec).dynamic_shared_bytes for spec in every)
    assert arch("gpu188").scratch_bytes * 3 // 8 < most <= arch("gpu188").scratch_bytes
    demand_fit(every[-1], "gpu188", tmp_path)


@pytest.mark.parametrize(("op", "pipeline"), [("gemm", "multistage"), ("attention_backward", "mma")])
def test_the_largest_kernels_for_48_kb_fit_it(op: str, pipeline: str, tmp_path: Path) -> None:
    demand_fit(kernels(op, pipeline, "gpu48")[-1], "gpu48", tmp_path)


def demand_fit(spec: KernelSpec, target: str, tmp_path: Path) -> None:
    found = demand_promises(backend("cuda").inspect(compiled(spec, tmp_path), spec))
    assert found.keeps_promises is not False
    for function in found.functions:
        assert function.resources is not None
        assert function.resources.scratch_bytes == 0, f"{spec.name}: {function.symbol} spills"
        assert function.resources.dynamic_shared_bytes <= arch(target).scratch_bytes


def test_code_of_an_arch_carries_ptx_where_its_flags_say_so(tmp_path: Path) -> None:
    """So that a newer GPU runs it; code for sm_90a alone could not, and has none."""
    spec = kernel("gemm", "multistage", "sm_80")
    if toolchain.find_toolchain().identity.kind == "nvrtc":
        pytest.skip("NVRTC gives machine code alone")
    assert b".target sm_80" in compiled(spec, tmp_path).read_bytes()
    tools = toolchain.find_toolchain()
    assert "-cubin" in tools.cubin_command(tmp_path / "x.cu", tmp_path / "x.cubin", "sm_90a")
    assert "-fatbin" in tools.cubin_command(tmp_path / "x.cu", tmp_path / "x.cubin", "sm_80")


def test_nvrtc_is_told_the_machine_code_that_the_flags_name() -> None:
    with settings.override(cuda_compiler="nvrtc"):
        try:
            tools = toolchain.find_toolchain()
        except ToolchainError as error:
            pytest.skip(f"no NVRTC: {error.message}")
        assert "--gpu-architecture=sm_120" in tools.flags("gpu188")
        assert "--gpu-architecture=sm_90a" in tools.flags("sm_90a")
