"""The host's half of GPU kernels, compiled alone: checks and workspaces are real, the device's code is not there."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.built import why_no_compiler
from tilewright.backends.base import backend
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.backends.cuda.toolchain import include_dirs as cuda_folders
from tilewright.backends.hip.toolchain import include_dirs as hip_folders
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import Kernel, load_library


class Launched(ctypes.Structure):
    """A launch that the stand-in of the HIP runtime saw."""

    _fields_ = (("grid", ctypes.c_uint * 3), ("threads", ctypes.c_uint), ("words", ctypes.c_uint64 * 8))


def launches(kernel: Kernel, args: ctypes.Structure, workspace: int | None = None) -> list[Launched]:
    """Launch a kernel of `hip_kernels`, and what that launched."""
    library = ctypes.CDLL(str(kernel.library_path))
    count = ctypes.c_int.in_dll(library, "tw_launch_count")
    count.value = 0
    assert kernel.launch(ctypes.addressof(args), workspace, None) == 0
    assert count.value <= 16, "the stand-in remembers 16"
    return list((Launched * 16).in_dll(library, "tw_launches"))[: count.value]


@dataclass(frozen=True)
class Hosted:
    path: Path
    said: str  # by the compiler


_WARNINGS = ("-Wall", "-Wextra", "-Wno-unused", "-Wno-unused-parameter")  # what the missing half would use
_FLAGS = ("-x", "c++", "-std=c++17", "-fPIC", "-fvisibility=hidden", *_WARNINGS)


def cuda_kernels(specs: Sequence[KernelSpec], folder: Path) -> list[Kernel]:
    return _loaded(specs, cuda_library(specs, folder))


def hip_kernels(specs: Sequence[KernelSpec], folder: Path) -> list[Kernel]:
    return _loaded(specs, hip_library(specs, folder))


def cuda_library(specs: Sequence[KernelSpec], folder: Path) -> Hosted:
    """CUDA's files are compiled in halves anyway: nvcc makes the cubin, the host's compiler the rest."""
    cubin = folder / "none.cubin"
    cubin.write_bytes(b"")
    return _built(specs, folder, (f'-DTW_CUBIN="{cubin}"',), cuda_folders(_ops(specs)))


def hip_library(specs: Sequence[KernelSpec], folder: Path) -> Hosted:
    """HIP's too: its half needs no CK Tile, and of the HIP runtime only names."""
    _stand_ins(folder / "include")
    return _built(specs, folder, (), (folder / "include", *hip_folders(_ops(specs))))


def _built(specs: Sequence[KernelSpec], folder: Path, flags: Sequence[str], places: Sequence[Path]) -> Hosted:
    why = why_no_compiler()
    if why:
        pytest.skip(why)
    sources = []
    for spec in specs:
        sources.append(folder / f"{spec.digest[:16]}.cpp")
        sources[-1].write_text(backend(_kind(spec)).render(spec).text, encoding="utf-8")
    made = folder / "kernels.so"
    command = [*find_toolchain().driver, *_FLAGS, *flags, *(f"-I{one}" for one in places), "-shared", "-o", str(made)]
    done = subprocess.run([*command, *map(str, sources), "-ldl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Hosted(made, done.stderr)


def _loaded(specs: Sequence[KernelSpec], hosted: Hosted) -> list[Kernel]:
    found = {one.spec.digest: one for one in load_library(hosted.path)}
    return [found[spec.digest] for spec in specs]


def _ops(specs: Sequence[KernelSpec]) -> list[str]:
    return sorted({spec.op for spec in specs})


def _kind(spec: KernelSpec) -> str:
    return "cuda" if spec.arch.startswith("sm_") else "hip"


# Of the HIP runtime the host's half wants a few names; nothing is launched.
RUNTIME = """#pragma once
#include <stddef.h>
#include <stdint.h>
#define __global__
#define __device__
#define __launch_bounds__(...)
struct dim3 { unsigned x, y, z; dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {} };
static dim3 blockIdx, threadIdx, blockDim;
using hipStream_t = void *;
enum hipError_t { hipSuccess };
enum hipDeviceAttribute_t { hipDeviceAttributeMultiprocessorCount };
inline hipError_t hipGetLastError() { return hipSuccess; }
inline hipError_t hipGetDevice(int *device) { *device = 0; return hipSuccess; }
inline hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t, int) { *value = 304; return hipSuccess; }
inline hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *, int, size_t) {
  *count = 1;
  return hipSuccess;
}
// What was launched since the count was set to 0: grids, and the first words of the argument.
struct tw_launch { unsigned grid[3], threads; uint64_t words[8]; };
extern "C" __attribute__((weak, visibility("default"))) tw_launch tw_launches[16];
extern "C" __attribute__((weak, visibility("default"))) int tw_launch_count;
tw_launch tw_launches[16];
int tw_launch_count;
inline hipError_t hipLaunchKernel(const void *, dim3 grid, dim3 block, void **args, size_t, hipStream_t) {
  tw_launch &one = tw_launches[tw_launch_count++ % 16];
  one.grid[0] = grid.x, one.grid[1] = grid.y, one.grid[2] = grid.z, one.threads = block.x;
  for (int i = 0; i < 8; ++i) one.words[i] = static_cast<const uint64_t *>(args[0])[i];
  return hipSuccess;
}
template <class... T> void launched(T...) {}
"""


GEMM_HEADER = "tilewright/hip/gemm.h"


def _header() -> str:
    found = next(one / GEMM_HEADER for one in hip_folders() if (one / GEMM_HEADER).exists())
    return found.read_text(encoding="utf-8")


def _stand_ins(folder: Path) -> None:
    """A HIP runtime of names, and our header without the one launch the host's compiler cannot read."""
    text = _header()
    text, count = re.subn(r"\bkernel<<<[^;]*?>>>\(", "launched(kernel, ", text)
    assert count == 1, "how packing is launched has changed: the stand-in must follow"
    for place, what in ((folder / GEMM_HEADER, text), (folder / "hip/hip_runtime.h", RUNTIME)):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(what, encoding="utf-8")
