"""Rowscale compiled for GPUs of both vendors, by every compiler there is: the op's own headers, no file of ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.built import why_not_compiled
from tests.inspect.code_objects import fake_objdump
from tests.inspect.cubins import LISTING, OTHER, cubin, host_library
from tilewright import ops, settings
from tilewright.arch import arch as facts_of
from tilewright.backends.base import backend
from tilewright.build import Builder
from tilewright.build.promises import demand_kept
from tilewright.errors import DeviceError, InspectionError
from tilewright.inspect import demand_promises
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import load_library

pytestmark = pytest.mark.tools  # a CUDA compiler


def specs(arch: str) -> Iterator[KernelSpec]:
    """Two that differ in every field a kernel may have."""
    axes = {"datatypes": ("fp32", "bf16"), "activations": ("PassThrough", "Silu")}
    every = list(ops.op("rowscale").proposals("default", arch, **axes))
    return iter((every[0], every[-1]))


def build(arch: str) -> None:
    why = why_not_compiled(arch)
    if why:
        pytest.skip(why)
    for spec in specs(arch):
        built = Builder().build_one(spec)
        found = demand_promises(backend(facts_of(arch).backend).inspect(built.path, spec))
        assert found.keeps_promises is not False
        assert (found.name, found.arch) == (spec.name, arch)
        for one in found.functions:
            assert one.resources is None or one.resources.scratch_bytes == 0


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_cuda(arch: str, compiler: str) -> None:
    with settings.override(cuda_compiler=compiler):
        build(arch)


@pytest.mark.amd
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_hip(arch: str) -> None:
    build(arch)


def test_promises_no_reader_can_decide_do_not_stop_a_build(tmp_path: Path) -> None:
    """Where nvcc is and nvdisasm is not, nobody knows a multiplication from other instructions."""
    library = tmp_path / "kernel.so"
    library.write_bytes(host_library(cubin(code=(OTHER,))))
    spec = next(specs("sm_90a"))
    with settings.override(objdump="/nonexistent/nvdisasm"):
        said = demand_kept(spec, library)
    assert said.startswith("undecided: FMUL or FFMA not seen")
    assert "/nonexistent/nvdisasm did not answer" in said
    with settings.override(objdump=str(fake_objdump(tmp_path, LISTING))):
        with pytest.raises(InspectionError, match="FMUL"):
            demand_kept(spec, library)
        fake_objdump(tmp_path, LISTING.replace("EXIT", "FMUL"))
        assert demand_kept(spec, library) == "kept"


def test_a_cuda_library_says_what_it_refuses_where_there_is_no_gpu() -> None:
    """The host's half loads anywhere; what it checks is what `supports` and the CPU's kernels check."""
    from rowscale.binding import stage

    if why := why_not_compiled("sm_80"):
        pytest.skip(why)
    op, spec = ops.op("rowscale"), next(specs("sm_80"))
    (kernel,) = load_library(Builder().build_one(spec).path)
    assert kernel.spec == spec
    args = stage(op.problem({"rows": 3, "columns": 7})).args
    assert kernel.refusal(args) == ""
    args.x_stride = 6
    assert "shorter than its row" in kernel.refusal(args)
    if not backend("cuda").available_archs():
        import numpy as np

        import tilewright as tw

        with pytest.raises(DeviceError):
            tw.rowscale(np.ones((2, 2), np.float32), np.ones(2, np.float32), target="sm_80")


def test_every_target_is_chosen_for_and_explained_without_one() -> None:
    import tilewright as tw

    op = ops.op("rowscale")
    for arch in ("sm_90a", "sm_80", "gfx942", "gfx1100", "x86_64_v3", "generic"):
        short, long = (tw.Registry(arch).select(op.problem({"rows": 64, "columns": one})) for one in (100, 40000))
        assert short.spec.arch == long.spec.arch == arch
        assert short.tier == "heuristic"
    assert {dataclasses.asdict(one.schedule)["pipeline"] for one in specs("gfx942")} == {"block"}
    chosen = {tw.Registry("sm_90a").select(op.problem({"rows": 9, "columns": one})).name for one in (100, 4096)}
    assert len(chosen) == 2, "the estimate tells short rows from long ones"
