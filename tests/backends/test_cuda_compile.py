"""CUDA kernels compiled for real, without a GPU: every class of legal specs, and what the code must hold.

A class is a pipeline, an element type and a layout; epilogues, outputs and the schedules of the pool `tests` take
turns over the classes, so that each occurs with each pipeline.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, product
from pathlib import Path

import pytest

from tests.backends.cuda.gemm import names as make
from tests.backends.cuda.gemm.names import PIPELINES
from tests.built import Built
from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cuda import toolchain
from tilewright.backends.cuda.toolchain import CudaToolchain
from tilewright.errors import ToolchainError
from tilewright.inspect import demand_promises
from tilewright.inspect.report import Instructions
from tilewright.ops import KernelSpec, op
from tilewright.ops.fused import EPILOGUES
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import LAYOUTS, GemmSignature

pytestmark = pytest.mark.tools  # a CUDA compiler

GEMM = op("gemm")
DATATYPES = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "fp32", "fp8_e4m3:fp16", "tf32")
OUTPUTS = {"int8": ("int32", "int8", "fp32")}
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")


@pytest.fixture(scope="module")
def tools() -> CudaToolchain:
    try:
        return toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}; {error.remedy}")


def signature(
    datatype: str, layout: str = "rcr", output: str = "", epilogue: str = "", count: int = 0
) -> GemmSignature:
    outputs, fused = ([output] if output else ()), ([epilogue] if epilogue else ())
    variant = "multi_d" if epilogue not in ("", "PassThrough") else "standard"
    return next(iter(signatures([datatype], [layout], [variant], fused, outputs, [count])))


def spec_of(one: GemmSignature, schedule: GemmSchedule, target: str = "sm_90a") -> KernelSpec:
    return KernelSpec("gemm", one, schedule, target)


def legal(pool: str, one: GemmSignature, target: str, pipeline: str) -> list[KernelSpec]:
    every = [spec_of(one, schedule, target) for schedule in make.schedules(pool, one, arch(target))]
    return [spec for spec in dict.fromkeys(every) if spec.schedule.pipeline == pipeline and not GEMM.check(spec)]


@lru_cache(maxsize=1)
def classes() -> tuple[KernelSpec, ...]:
    """One kernel of each class; on sm_80, whose code is made of the same headers, of every third."""
    found = []
    for target, pipeline in product(("sm_90a", "sm_80"), PIPELINES):
        epilogues = cycle(EPILOGUES)
        turns: Counter[tuple[str, ...]] = Counter()
        number = 0
        for datatype, layout in product(DATATYPES, LAYOUTS):
            if not legal("tests", signature(datatype, layout), target, pipeline):
                continue
            number += 1
            if target == "sm_80" and number % 3 != 1:
                continue
            epilogue = next(epilogues)
            outputs = OUTPUTS.get(datatype, FLOAT_OUTPUTS)
            output = outputs[turns[pipeline, "output"] % len(outputs)]
            one = signature(datatype, layout, output, epilogue, 0 if epilogue == "PassThrough" else 1)
            specs = legal("tests", one, target, pipeline)
            if specs:
                found.append(specs[turns[pipeline, "schedule"] % len(specs)])
                turns[pipeline, "output"] += 1
                turns[pipeline, "schedule"] += 1
    return tuple(found)


def widest() -> Iterator[KernelSpec]:
    """Of the default pool: the tiles that keep the most sums in registers, plain and fused."""
    for one in (signature("bf16"), signature("bf16", epilogue="Gelu", count=2)):
        for pipeline, count in (("tma_ws", 5), ("multistage", 1), ("skinny", 1)):
            specs = legal("default", one, "sm_90a", pipeline)

            def sums(spec: KernelSpec) -> float:
                m, n, _ = spec.schedule.tile
                return float(m * n / (spec.schedule.warp_grid[0] * spec.schedule.warp_grid[1]))

            tiles: dict[tuple[int, ...], KernelSpec] = {}
            for spec in sorted(specs, key=sums, reverse=True):
                tiles.setdefault(spec.schedule.tile, spec)
            yield from list(tiles.values())[:count]


PACKED = next(iter(signatures(["bf16"], ["rrr"], ["preshuffle"])))
PACKED_SPECS = tuple(
    spec_of(PACKED, make.tma_ws(PACKED, 128, 128, 4, cluster, make.WAYS[way]))
    for cluster, way in (((2, 1), "cooperative"), ((1, 1), "pingpong_swap_ab_split_k"))
)
WIDEST = tuple(widest())
KERNELS = (*classes(), *WIDEST, *PACKED_SPECS)


def compiled(built: Built, spec: KernelSpec) -> Instructions:
    """The instructions of a kernel whose code is as promised and fits into shared memory."""
    assert GEMM.check(spec) == []
    found = demand_promises(backend("cuda").inspect(built.artifact(spec).path, spec))
    assert found.keeps_promises is not False
    for one in found.functions:  # the kernel, and those that copy operands for it
        assert one.resources is not None
        assert one.instructions is not None
        assert one.resources.shared_bytes + one.resources.dynamic_shared_bytes <= arch(spec.arch).scratch_bytes
        assert one.occupancy is not None
        assert one.occupancy.warps >= 1, "not one block fits on a multiprocessor"
    main = next(one for one in found.functions if one.symbol == spec.name)
    assert main.resources is not None
    assert main.instructions is not None
    assert (main.resources.dynamic_shared_bytes > 0) == (spec.schedule.pipeline != "loops")
    return main.instructions


def named(spec: KernelSpec) -> str:
    return spec.name.removeprefix("gemm_")


@pytest.mark.sampled(6)
@pytest.mark.part(32)
@pytest.mark.parametrize("spec", classes(), ids=named)
def test_every_class_of_kernels(built: Built, spec: KernelSpec) -> None:
    found = compiled(built, spec)
    if spec.schedule.pipeline == "tma_ws":
        assert found.matrix_count
        assert any(name.startswith("UTMALDG") for name in found.copies)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spec", WIDEST, ids=named)
def test_the_widest_tiles_fit(built: Built, spec: KernelSpec) -> None:
    """That they do not spill is asked of named compilers, by tests/test_compilers.py."""
    compiled(built, spec)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spec", PACKED_SPECS, ids=named)
def test_a_packed_operand_comes_by_plain_copies(built: Built, spec: KernelSpec) -> None:
    found = compiled(built, spec)
    assert found.matrix_count
    assert any(name.startswith("UBLKCP") for name in found.copies), found.copies


def test_the_classes_cover_what_they_should() -> None:
    for target in ("sm_90a", "sm_80"):
        here = [spec for spec in classes() if spec.arch == target]
        wanted = {one for one in PIPELINES if target == "sm_90a" or not one.endswith("_ws")}
        assert {spec.schedule.pipeline for spec in here} == wanted
    here = [spec for spec in classes() if spec.arch == "sm_90a"]
    for pipeline in ("multistage", "loops"):
        mine = [spec.signature for spec in here if spec.schedule.pipeline == pipeline]
        assert {one.epilogue for one in mine} == set(EPILOGUES)
        assert {one.layout for one in mine} == set(LAYOUTS)
        assert {one.dtype_a for one in mine} >= {"bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "fp32", "tf32"}
    wide = [spec for spec in here if spec.schedule.pipeline == "tma_ws"]
    assert {spec.signature.layout for spec in wide} == set(LAYOUTS)
    assert {spec.signature.dtype_a for spec in wide} >= {"bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "tf32"}
    assert len({(spec.schedule.grouping, spec.schedule.swap_ab, spec.schedule.tile_scheduler) for spec in wide}) >= 5
    assert {spec.schedule.store for spec in wide} == {"tma", "direct"}


def test_wgmma_and_tma_as_they_were_meant(tools: CudaToolchain, tmp_path: Path) -> None:
    """In the compiler's own assembly: multicast to the cluster, registers that change hands, loads past the L1."""
    if tools.identity.kind != "nvcc":
        pytest.skip("only nvcc keeps its intermediate files")
    one = signature("bf16", "rrr")
    hopper = make.tma_ws(one, 128, 128, 4, (1, 2), make.WAYS["pingpong"])
    wide = ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "multicast::cluster", "setmaxnreg")
    copies = ("cp.async.bulk.tensor.3d.shared::cluster.global", "cp.async.bulk.tensor.3d.global.shared::cta")
    few = ("mma.sync.aligned.m16n8k16.row.col.f32.bf16", "ld.global.nc.L1::no_allocate")
    cases: tuple[tuple[GemmSchedule, tuple[str, ...]], ...] = (
        (hopper, (*wide, *copies)),
        (make.skinny(2, 2, 8), few),
    )
    for number, (schedule, words) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        spec = spec_of(one if number == 0 else signature("bf16"), schedule)
        source = folder / "kernel.cu"
        source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
        kept = ("--keep", "--keep-dir", str(folder))
        command = tools.cubin_command(source, folder / "kernel.ptx", spec.arch, *kept, op=spec.op)
        command[command.index("-cubin")] = "-ptx"
        subprocess.run(command, check=True, capture_output=True, env=settings.child_environment())
        text = (folder / "kernel.ptx").read_text(encoding="utf-8")
        assert [word for word in words if word not in text] == []


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


def test_a_person_can_build_the_same_file_with_nvcc_alone(tools: CudaToolchain, tmp_path: Path) -> None:
    """As `tilewright wrap` does: host and device in one object, kernels of one library beside each other."""
    from tilewright.runtime.loader import load_library

    rules = toolchain.object_rules("sm_90a", ["gemm"])
    one = signature("bf16")
    specs = [
        spec_of(one, make.skinny(1, 1, 4)),
        spec_of(one, make.fallback_schedule(one, arch("sm_90a"))),
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
