"""CUDA kernels compiled for real, without a GPU: every pipeline, dtype and layout, and what the code must hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cuda import toolchain
from tilewright.backends.cuda.toolchain import CudaToolchain
from tilewright.errors import ToolchainError
from tilewright.ops import KernelSpec, op
from tilewright.ops.gemm import nvidia_schedules as make
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import LAYOUTS, GemmSchedule, GemmSignature

GEMM = op("gemm")


@pytest.fixture(scope="module")
def nvcc() -> CudaToolchain:
    try:
        return toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}")


def signature(
    datatype: str, layout: str = "rcr", output: str = "", epilogue: str = "", count: int = 0
) -> GemmSignature:
    outputs, fused = ([output] if output else ()), ([epilogue] if epilogue else ())
    variant = "multi_d" if epilogue else "standard"
    return next(iter(signatures([datatype], [layout], [variant], fused, outputs, [count])))


def compiled(nvcc: CudaToolchain, spec: KernelSpec, folder: Path) -> tuple[str, str, int]:
    """The PTX, what ptxas said, and the bytes of dynamic shared memory the kernel will ask for."""
    assert GEMM.check(spec) == []
    source = folder / f"{spec.name}.cu"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    cubin = folder / "kernel.cubin"
    command = nvcc.cubin_command(source, cubin, spec.arch, "-Xptxas", "-v", "--keep", "--keep-dir", str(folder))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=settings.child_environment()
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr + done.stdout
    ptx = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.ptx"))
    assert "0 bytes spill stores, 0 bytes spill loads" in said, said
    assert "warning" not in said.lower(), said
    shared = make.shared_bytes(spec.schedule) if spec.schedule.pipeline == "tma_ws" else 0
    static = re.search(r"(\d+) bytes smem", said)
    assert shared + int(static[1] if static else 0) <= arch(spec.arch).scratch_bytes
    return ptx, said, shared


def spec_of(one: GemmSignature, schedule: GemmSchedule, target: str = "sm_90a") -> KernelSpec:
    return KernelSpec("gemm", one, schedule, target)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("datatype", ["bf16", "fp16"])
def test_tensor_core_kernels_of_every_layout(nvcc: CudaToolchain, datatype: str, layout: str, tmp_path: Path) -> None:
    one = signature(datatype, layout)
    ptx, _, _ = compiled(nvcc, spec_of(one, make.tma_ws(one, 128, 128, 4, (1, 2), "pingpong")), tmp_path)
    kind = "bf16.bf16" if datatype == "bf16" else "f16.f16"
    assert f"wgmma.mma_async.sync.aligned.m64n128k16.f32.{kind}" in ptx
    assert "cp.async.bulk.tensor.3d.shared::cluster.global" in ptx
    assert "multicast::cluster" in ptx
    assert "cp.async.bulk.tensor.3d.global.shared::cta" in ptx
    assert "setmaxnreg" in ptx


@pytest.mark.parametrize(
    ("m", "n", "stages", "cluster", "scheduler"),
    [
        (128, 256, 4, (2, 1), "cooperative"),
        (256, 128, 4, (1, 2), "cooperative_stream_k"),
        (64, 256, 4, (1, 1), "pingpong"),
        (64, 64, 8, (1, 1), "pingpong_stream_k"),
        (128, 176, 5, (2, 1), "cooperative"),
        (256, 160, 3, (1, 1), "cooperative"),  # the most sums a thread may keep
    ],
)
@pytest.mark.parametrize("fused", [False, True])
def test_large_tiles_do_not_spill(
    nvcc: CudaToolchain,
    m: int,
    n: int,
    stages: int,
    cluster: tuple[int, int],
    scheduler: str,
    fused: bool,
    tmp_path: Path,
) -> None:
    one = signature("bf16", epilogue="Gelu", count=2) if fused else signature("bf16")
    compiled(nvcc, spec_of(one, make.tma_ws(one, m, n, stages, cluster, scheduler)), tmp_path)


@pytest.mark.parametrize(("datatype", "output"), [("fp8_e4m3", "fp32"), ("fp8_e5m2", "bf16"), ("bf16", "fp32")])
def test_other_inputs_and_outputs(nvcc: CudaToolchain, datatype: str, output: str, tmp_path: Path) -> None:
    one = signature(datatype, output=output)
    ptx, _, _ = compiled(nvcc, spec_of(one, make.tma_ws(one, 128, 128, 4, (2, 1))), tmp_path)
    kind = {"fp8_e4m3": "k32.f32.e4m3.e4m3", "fp8_e5m2": "k32.f32.e5m2.e5m2", "bf16": "k16.f32.bf16.bf16"}[datatype]
    assert kind in ptx


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_skinny_kernels(nvcc: CudaToolchain, target: str, tmp_path: Path) -> None:
    one = signature("fp16", epilogue="MultiDAdd", count=1)
    for number, schedule in enumerate((make.skinny(2, 2, 8), make.skinny(1, 1, 16, "columns"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        ptx, _, _ = compiled(nvcc, spec_of(one, schedule, target), folder)
        assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in ptx
        assert "ld.global.nc.L1::no_allocate" in ptx


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("datatype", "output", "epilogue"),
    [
        ("fp32", "fp32", "Tanh"),
        ("int8", "int8", "FastGelu"),
        ("fp8_e4m3:fp16", "bf16", "Sigmoid"),
        ("bf16", "bf16", ""),
    ],
)
def test_generic_kernels(
    nvcc: CudaToolchain, target: str, datatype: str, output: str, epilogue: str, tmp_path: Path
) -> None:
    one = signature(datatype, "crr", output, epilogue, 1 if epilogue else 0)
    compiled(nvcc, spec_of(one, make.generic_schedule(one, arch(target)), target), tmp_path)


def test_a_compiler_that_is_missing_old_or_silent_has_its_error(tmp_path: Path) -> None:
    def program(text: str) -> str:
        path = tmp_path / "nvcc"
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        toolchain.forget()
        return str(path)

    for words, rule, said in (
        (str(tmp_path / "none"), "no-nvcc", "not on this machine"),
        (program("echo 'Cuda compilation tools, release 11.8, V11.8.89'"), "broken-nvcc", "CUDA 11.8"),
    ):
        with settings.override(nvcc=words), pytest.raises(ToolchainError, match=said) as caught:
            toolchain.find_toolchain()
        assert caught.value.rule == rule
        assert caught.value.remedy
    with settings.override(nvcc=program("exit 3")), pytest.raises(ToolchainError, match="exited with 3"):
        toolchain.find_toolchain()
    toolchain.forget()


def test_a_person_can_build_the_same_file_with_nvcc_alone(nvcc: CudaToolchain, tmp_path: Path) -> None:
    """As `tilewright wrap` does: host and device in one object, kernels of one library beside each other."""
    from tilewright.runtime.loader import load_library

    rules = toolchain.object_rules("sm_90a")
    one = signature("bf16")
    specs = [
        spec_of(one, make.skinny(1, 1, 4)),
        spec_of(one, make.generic_schedule(one, arch("sm_90a"))),
    ]
    places = [f"-I{path}" for path in rules.include_dirs]
    objects = []
    for number, spec in enumerate(specs):
        source = tmp_path / f"{spec.name}.cu"
        source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
        objects.append(str(tmp_path / f"{number}.o"))
        command = [*rules.compiler, *rules.compile_flags, *places, "-c", "-o", objects[-1], str(source)]
        subprocess.run(command, check=True, capture_output=True)
    library = tmp_path / "libkernels.so"
    linked = subprocess.run(
        [*rules.compiler, "-shared", *rules.link_flags, "-o", str(library), *objects, *rules.libraries],
        check=False,
        capture_output=True,
        text=True,
    )
    if linked.returncode and "cudart" in linked.stderr:
        pytest.skip("this CUDA installation has no libcudart to link with")
    assert linked.returncode == 0, linked.stderr
    assert {kernel.spec.digest for kernel in load_library(library)} == {spec.digest for spec in specs}
