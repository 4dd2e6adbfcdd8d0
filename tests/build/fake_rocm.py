"""A ROCm installation of a few lines of shell: hipcc says who it is and then behaves as a test wants."""

from __future__ import annotations

from pathlib import Path

from tests.backends.test_hip_toolchain import make_headers
from tests.inspect.code_objects import bundle, code_object, fake_objdump, host_library
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

_HIPCC = """#!/bin/sh
case " $* " in *" --version "*) echo "HIP version: 7.2.4"; echo "clang version 22.1.8"; exit 0;; esac
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; *.hpp) src=$1;; esac
  shift
done
echo "${{src##*/}}" >> {record}
{body}
"""


def write_rocm(folder: Path, body: str = "", **headers: bool) -> Path:
    """A hipcc that runs `body` (or makes a library with device code) and headers beside it."""
    made = folder / "library.so"
    hipcc = folder / "bin" / "hipcc"
    hipcc.parent.mkdir(parents=True)
    made.write_bytes(host_library(bundle({"gfx942": code_object()})))
    hipcc.write_text(_HIPCC.format(record=folder / "record", body=body or f'cat {made} > "$out"'))
    hipcc.chmod(0o755)
    make_headers(folder / "include", **headers)
    tool = fake_objdump(folder)
    tool.rename(hipcc.with_name("llvm-objdump"))
    return folder


def compiled(folder: Path) -> list[str]:
    record = folder / "record"
    return record.read_text().split() if record.exists() else []


def amd_specs(count: int) -> list[KernelSpec]:
    problem = GemmProblem(m=256, n=256, k=256, dtype_a="fp16", dtype_b="fp16", layout="rcr")
    return [one for one, _ in zip(op("gemm").candidates(problem.signature, "gfx942"), range(count), strict=False)]
