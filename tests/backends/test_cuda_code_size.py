"""Code that a kernel never runs is not compiled: it was a third of a convolution's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tilewright import ops
from tilewright.backends.base import backend
from tilewright.backends.cuda import toolchain
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec

ARCH = "sm_90a"


SCHEDULE = {"cluster": [1, 1], "grouping": "cooperative", "pipeline": "tma_ws", "stages": 4, "store": "tma",
            "tile": [128, 128, 64]}  # fmt: skip
SIGNATURE = {"dtype_acc": "fp32", "dtype_d": "bf16", "epilogue": "PassThrough", "num_d": 0}
SPECS = {
    "gemm": {
        "schedule": {**SCHEDULE, "dealing": "tiles", "turned": False},
        "signature": {**SIGNATURE, "dtype_a": "bf16", "dtype_b": "bf16", "dtype_c": "bf16", "layout": "rrr",
                      "variant": "standard"},
    },
    "conv": {
        "schedule": {**SCHEDULE, "dealing": "tiles", "merged": False},
        "signature": {**SIGNATURE, "dtype": "bf16", "dtype_out": "bf16", "spatial": 2, "variant": "forward"},
    },
}  # fmt: skip


def plain_spec(op: str) -> KernelSpec:
    """A kernel whose results leave by TMA, with nothing fused."""
    return ops.op(op).spec_from_dict({"arch": ARCH, "op": op, "schema": 2, **SPECS[op]})


def ptx(spec: KernelSpec, folder: Path) -> str:
    try:
        with_nvcc = toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}; {error.remedy}")
    if with_nvcc.identity.kind != "nvcc":
        pytest.skip("nvcc keeps its PTX")
    source = folder / "kernel.cu"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    more = ("--keep", "--keep-dir", str(folder))
    command = with_nvcc.cubin_command(source, folder / "kernel.cubin", ARCH, *more, op=spec.op)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "kernel.ptx").read_text(encoding="utf-8")


@pytest.mark.tools
@pytest.mark.parametrize(("op", "reads_c"), [("gemm", True), ("conv", False)])
def test_only_kernels_that_take_c_have_code_for_it(op: str, reads_c: bool, tmp_path: Path) -> None:
    """C comes through shared memory, from where `ldmatrix` reads it; convolutions have none."""
    assert ("ldmatrix" in ptx(plain_spec(op), tmp_path)) == reads_c
