"""What compilers say of our code.

That they say nothing, and that no kernel keeps sums in local memory, is demanded of the compilers named here, which
have been seen to keep it; what any other one says is reported as a warning of this run.  No other test asks.
"""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.backends import test_cuda_compile
from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm import names as cpu
from tests.built import Built, why_no_compiler, why_not_compiled
from tests.runtime import hosted, test_gpu_checks
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.backends.cpu.toolchain import CpuToolchain, candidates, find_toolchain, identify
from tilewright.backends.cuda.toolchain import find_toolchain as find_cuda
from tilewright.build import Artifact
from tilewright.errors import ToolchainError
from tilewright.inspect import nvidia
from tilewright.ops.base import KernelSpec

# As they name themselves.
DEMANDED = (r"^gcc .* 12\.2\.\d+$", r"clang version 14\.", r"^zig 0\.17\.")
DEMANDED_CUDA = (r"^nvcc .*cuda_13\.0\..*, (gcc .* 12\.2\.\d+$|.*clang version 14\.|zig 0\.17\.)",)  # and the host's


class CompilerSays(UserWarning):
    """A compiler nobody has named complains."""


def judge(compiler: str, complaints: Mapping[str, str], demanded: tuple[str, ...] = DEMANDED) -> None:
    """Fail where a named compiler complains; of another, tell."""
    if not complaints:
        return
    first, text = next(iter(complaints.items()))
    told = f"{compiler} complains of {len(complaints)} kernel(s), of {first} first:\n{text[:2000]}"
    if any(re.search(one, compiler) for one in demanded):
        pytest.fail(told)
    warnings.warn(told, CompilerSays, stacklevel=2)


def said(artifact: Artifact) -> str:
    log = artifact.path.parent / "compiler.log"
    return log.read_text(encoding="utf-8") if log.exists() else ""


def test_named_compilers_are_held_to_it_and_others_are_told() -> None:
    for one in (
        "gcc (Debian 12.2.0-14+deb12u1) 12.2.0",
        "Debian clang version 14.0.6",
        "zig 0.17.0 (clang version 22)",
    ):
        judge(one, {})
        with pytest.raises(pytest.fail.Exception, match=r"of kernel first:\nwarning"):
            judge(one, {"kernel": "warning: hm"})
    with pytest.warns(CompilerSays, match="of kernel first"):
        judge("gcc (GCC) 17.1.0", {"kernel": "warning: hm"})
    with pytest.raises(pytest.fail.Exception):
        judge("nvcc Build cuda_13.0.r13.0/compiler.1, gcc (Debian) 12.2.0", {"kernel": "spills"}, DEMANDED_CUDA)
    for one in ("cuda_13.2.r13.2/compiler.1, gcc (Debian) 12.2.0", "cuda_13.0.r13.0/compiler.1, gcc (GCC) 17.1.0"):
        with pytest.warns(CompilerSays):
            judge(f"nvcc Build {one}", {"kernel": "spills"}, DEMANDED_CUDA)


@pytest.mark.proof
def test_kernels_of_the_cpu(built: Built) -> None:
    why = why_no_compiler()
    if why:
        pytest.skip(why)
    wanted = [spec for spec in catalog.of_all_tests() if not why_not_compiled(spec.arch)]
    assert {spec.schedule.pipeline for spec in wanted} == set(cpu.PIPELINES)
    built.together(wanted)
    logs = {spec.name: said(built.artifact(spec)) for spec in wanted}
    judge(find_toolchain().identity.version, {name: log for name, log in logs.items() if log})


def other_compilers() -> list[CpuToolchain]:
    """C++ compilers of this machine beside the one the suite builds with."""
    found = {find_toolchain().identity.digest: find_toolchain()}
    for driver in candidates():
        try:
            other = identify(driver)
        except ToolchainError:
            continue
        found.setdefault(other.identity.digest, other)
    return list(found.values())[1:]


@pytest.mark.proof
@pytest.mark.parametrize("pipeline", cpu.PIPELINES)
def test_other_compilers_of_this_machine(pipeline: str, tmp_path: Path) -> None:
    others = [] if why_no_compiler() else other_compilers()
    if not others:
        pytest.skip("this machine does not have two C++ compilers")
    specs = [
        catalog.spec(pipeline, "generic", ("fp16", "fp16", "bf16"), "rrr"),
        catalog.spec(pipeline, "x86_64_v4_bf16", ("bf16", "bf16", "fp32"), "rrr"),
        catalog.spec(pipeline, "x86_64_v3", ("int8", "int8", "int32"), "rrr"),
    ]
    for toolchain in others:
        complaints = {}
        for spec in specs:
            try:
                command = toolchain.command(tmp_path / f"{spec.name}.cpp", tmp_path / "kernel.so", spec.arch, spec.op)
            except ToolchainError:
                continue  # it compiles for another machine
            (tmp_path / f"{spec.name}.cpp").write_text(backend("cpu").render(spec).text, encoding="utf-8")
            environment = settings.child_environment(dict(toolchain.environment(tmp_path)))
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
            assert ended.returncode == 0, ended.stderr[:2000]
            if ended.stderr:
                complaints[spec.name] = ended.stderr
        judge(toolchain.identity.version, complaints)


def one_a_pipeline(specs: list[KernelSpec]) -> list[KernelSpec]:
    return list({(spec.schedule.pipeline, spec.signature.variant): spec for spec in specs}.values())


def test_the_hosts_half_of_gpu_kernels(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "hip").mkdir()
    halves = {
        "those for CUDA": hosted.cuda_library(one_a_pipeline(test_gpu_checks.CUDA), tmp_path / "cuda").said,
        "those for HIP": hosted.hip_library(one_a_pipeline(test_gpu_checks.HIP), tmp_path / "hip").said,
    }
    judge(find_toolchain().identity.version, {name: text for name, text in halves.items() if text})


@pytest.mark.proof
def test_kernels_for_cuda(built: Built) -> None:
    """Both halves: nvcc's messages, those of the host's compiler, and what the code keeps in local memory."""
    why = why_not_compiled("sm_90a")
    if why:
        pytest.skip(why)
    wanted = test_cuda_compile.KERNELS
    built.together(wanted)
    complaints = {spec.name: said(built.artifact(spec)) for spec in wanted}
    for spec in wanted:
        for one in nvidia.inspect(built.artifact(spec).path).functions:
            if one.resources is not None and one.resources.scratch_bytes:
                complaints[spec.name] += f"{one.symbol} keeps {one.resources.scratch_bytes} bytes in local memory\n"
            if one.instructions is not None and one.instructions.stack_moves:
                complaints[spec.name] += f"{one.symbol} moves registers to the stack\n"
    tools = find_cuda()
    assert {"-Wall", "-Wextra"} <= set(tools.host_command(Path("k.cu"), Path("k.cubin"), Path("k.s")))
    judge(tools.identity.version, {name: text for name, text in complaints.items() if text}, DEMANDED_CUDA)
